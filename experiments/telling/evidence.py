"""Published evidence: quality figures that papers report, as ``conf/evidence/*.yaml`` quotes them. Never ours."""

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from variants.contract.dtype import Dtype
from variants.contract.model import ModelShape
from variants.contract.plugin import find

EVERY = "all"
BETTER = ("higher", "lower")


@dataclass(frozen=True)
class Metric:
    """What a paper measured; ``better`` says which way, ``decimals`` how exactly it is printed there."""

    key: str
    name: str
    better: str
    decimals: int

    def said(self, finding: "Finding") -> str:
        """A model's value as the paper prints it."""
        return f"{finding.values[self.key]:.{self.decimals}f}"


@dataclass(frozen=True)
class Finding:
    """One model of a paper. ``bytes_per_token``: one layer, counted from the paper's own shape; None: it gives none."""

    variant: str
    name: str
    values: Mapping[str, float]
    bytes_per_token: float | None


@dataclass(frozen=True)
class Evidence:
    """A comparison inside one paper; the first of ``metrics`` is drawn. ``shape`` says where its sizes are from."""

    name: str
    title: str
    source: str
    date: str
    setting: str
    checked: str
    shape: str | None
    metrics: tuple[Metric, ...]
    findings: tuple[Finding, ...]


def front(it: Evidence) -> list[Finding]:
    """The models of one paper that none of its others beats, by the metric drawn: fewest bytes first.

    Another beats a model if it caches no more, is no worse, and differs in one of the two. Empty without bytes.
    """
    metric = it.metrics[0]
    sign = 1 if metric.better == "lower" else -1
    placed = [(f.bytes_per_token, sign * f.values[metric.key], f) for f in it.findings if f.bytes_per_token is not None]
    best = [
        (size, worse, f)
        for size, worse, f in placed
        if not any(a <= size and b <= worse and (a, b) != (size, worse) for a, b, _ in placed)
    ]
    return [f for _, _, f in sorted(best, key=lambda one: one[:2])]


def read_evidence(folder: Path, wanted: object) -> tuple[Evidence, ...]:
    """The named files of a folder, ``all`` of them, or none for null.

    ValueError in one line names the file and the key that is wrong.
    """
    known = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
    names = list(known) if wanted == EVERY else wanted or []
    if not isinstance(names, Sequence) or isinstance(names, str):
        raise ValueError(f"report.evidence must be a list of names, {EVERY} or null; got {wanted!r}")
    for name in names:
        if name not in known:
            raise ValueError(f"report.evidence must be of {', '.join(known) or 'no file'}; got {name!r}")
    return tuple(_read(known[name]) for name in dict.fromkeys(names))


def _read(path: Path) -> Evidence:
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"evidence {path.name}: no safe YAML: {' '.join(str(error).split())}") from None
    file = _File(path.name)
    top = file.mapping("the file", raw, TOP)
    shape = None if top["shape"] is None else file.mapping("shape", top["shape"], SHAPE)
    metrics = tuple(_metric(file, key, it) for key, it in file.filled("metrics", top["metrics"]).items())
    texts = {key: file.text(key, top[key]) for key in TOP[:2] + TOP[3:5]}
    points = top["points"]
    if not isinstance(points, list) or len(points) < 2:
        raise file.wrong("points", "a list of two models or more", points)
    findings = tuple(_finding(file, f"points[{n}]", it, metrics, shape) for n, it in enumerate(points))
    said = None if shape is None else file.text("shape.source", shape["source"])
    return Evidence(path.stem, **texts, date=_date(file, top["date"]), shape=said, metrics=metrics, findings=findings)


TOP = ("title", "source", "date", "setting", "checked", "shape", "metrics", "points")
SHAPE = ("source", "dtype", "hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim")


@dataclass(frozen=True)
class _File:
    """Says which file and which key is wrong."""

    name: str

    def wrong(self, key: str, expected: str, got: object) -> ValueError:
        return ValueError(f"evidence {self.name}: {key} must be {expected}; got {got!r}")

    def mapping(self, key: str, raw: Any, fields: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
        if not isinstance(raw, dict) or set(raw) - {*optional} != {*fields}:
            raise self.wrong(key, f"a mapping of {', '.join(fields)}", list(raw) if isinstance(raw, dict) else raw)
        return raw

    def filled(self, key: str, raw: Any) -> dict[str, Any]:
        if not isinstance(raw, dict) or not raw or not all(isinstance(name, str) for name in raw):
            raise self.wrong(key, "a mapping with at least one name", raw)
        return raw

    def text(self, key: str, raw: Any) -> str:
        if not isinstance(raw, str) or not raw.strip():
            raise self.wrong(key, "a text", raw)
        return raw

    def number(self, key: str, raw: Any) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int | float) or not math.isfinite(raw):
            raise self.wrong(key, "a number", raw)
        return float(raw)

    def built(self, key: str, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (ValueError, TypeError) as error:
            raise ValueError(f"evidence {self.name}: {key}: {error}") from None


def _metric(file: _File, key: str, raw: Any) -> Metric:
    own = file.mapping(f"metrics.{key}", raw, ("name", "better", "decimals"))
    if own["better"] not in BETTER:
        raise file.wrong(f"metrics.{key}.better", " or ".join(BETTER), own["better"])
    if own["decimals"] not in range(7) or isinstance(own["decimals"], bool):
        raise file.wrong(f"metrics.{key}.decimals", "a whole number from 0 to 6", own["decimals"])
    return Metric(key, file.text(f"metrics.{key}.name", own["name"]), own["better"], own["decimals"])


def _finding(file: _File, key: str, raw: Any, metrics: Sequence[Metric], shape: Mapping[str, Any] | None) -> Finding:
    own = file.mapping(key, raw, ("variant", "name", "values"), optional=("attention",))
    variant, name = (file.text(f"{key}.{field}", own[field]) for field in ("variant", "name"))
    values = file.mapping(f"{key}.values", own["values"], [metric.key for metric in metrics])
    numbers = {metric: file.number(f"{key}.values.{metric}", value) for metric, value in values.items()}
    if (shape is None) != ("attention" not in own):
        raise file.wrong(f"{key}.attention", "given where the paper's shape is, and only there", own.get("attention"))
    size = None if shape is None else _bytes_per_token(file, key, own["attention"], shape)
    return Finding(variant, name, numbers, size)


def _bytes_per_token(file: _File, key: str, attention: Any, shape: Mapping[str, Any]) -> float:
    """One layer's, from the layout of the variant in the paper's shape."""
    options = dict(file.filled(f"{key}.attention", attention))
    model = {field: shape[field] for field in SHAPE if field not in ("source", "dtype")}
    dtype = file.built("shape.dtype", lambda: Dtype.parse(shape["dtype"]))
    its = file.built("shape", lambda: ModelShape(name=file.name, source=str(shape["source"]), **model))
    spec = file.built(
        f"{key}.attention", lambda: find("attention", options.pop("kind", None)).from_model(its, **options)
    )
    return float(spec.layout(dtype).bytes_per_token)


def _date(file: _File, raw: Any) -> str:
    if not isinstance(raw, datetime.date) or isinstance(raw, datetime.datetime):
        raise file.wrong("date", "a day such as 2024-05-07", raw)
    return raw.isoformat()
