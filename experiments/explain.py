"""What a decode step does with its tensors: ``python -m experiments.explain attention=mla``; ``toy=true`` for numbers.

The step is run and watched; nothing is told that was not seen. Exit code 2: bad input, or a step that does not fit here
or that the backend refuses.
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from experiments.door import Composed, open_door

if TYPE_CHECKING:
    from experiments.measuring.series import Series
    from experiments.telling.explaining.part import Part
    from experiments.traced import Traced

WIDTH = 100
COLUMNS = ("stage", "name", "letters", "shape", "dtype", "bytes", "count", "fate", "functions", "minor")


def explain(configs: Sequence[Composed]) -> int:
    """Print the explanation each config asks for; 0. ValueError in one line, with nothing printed of that config."""
    for config in configs:
        if not isinstance(config.values["toy"], bool):
            raise ValueError(f"toy must be true or false; got {config.values['toy']!r}")
        _say(_toy(config) if config.values["toy"] else _step(config))
    return 0


def main() -> None:
    """Entry point of ``kvariants-explain``."""
    open_door("explain", explain)


def _step(config: Composed) -> "list[Part]":
    from experiments.measuring.device import find_device  # torch: not needed for --help
    from experiments.measuring.tracing.step import trace
    from experiments.planning.output import check_out
    from experiments.telling.explaining.saved import Compared, queries, saved
    from experiments.telling.explaining.tensors import made, persisting
    from variants.contract.cost import Point

    series, out = _series(config), config.values["out"]
    if out:
        check_out(Path(str(out)))
    workload = series.workload
    point = Point(_one(workload.batches, "batch"), _one(workload.contexts, "context"), 1, workload.dtype)
    here = find_device("cpu")
    assert here is not None
    traced = trace(series, point, here)
    name = config.choices["attention"] or "this"
    layers = series.model.num_hidden_layers
    compared = Compared(name, series.spec, _mha(series), workload.kv_dtype, layers, point)
    parts = [
        *persisting(traced, point.batch),
        *made(traced, point.batch),
        *saved(compared),
        queries(compared, *_asked(traced)),
    ]
    if out:
        _write(traced, Path(str(out)))
    return [_heading(config, series), *parts]


def _toy(config: Composed) -> "list[Part]":
    from experiments.measuring.tracing.toy import walk
    from experiments.telling.explaining.walk import told

    if config.values["out"]:
        raise ValueError("out is for the tensors of a step; got it with toy=true")
    return told(config.choices["attention"] or "this", walk(config.values["attention"]))


def _series(config: Composed) -> "Series":
    """The series of a config that says no more than a step needs."""
    from experiments.measuring.series import parse_labels, parse_series

    values = config.values
    own = {name: values[name] for name in ("batch", "context", "dtype", "kv_dtype", "seed")}
    raw = {
        **{group: values[group] for group in ("attention", "storage", "backend", "model")},
        "workload": {**own, "queries": 1, "scopes": "step", "temperature": "warm"},
        "timer": {"kind": "wall", "rounds": 1, "replicas": 1, "threads": None},
        "device": {"kind": "cpu"},
        "tp": 1,
    }
    return parse_series(raw, parse_labels(raw, config.choices, "explain"))


def _mha(series: "Series") -> Any:
    from variants.contract.plugin import find

    return find("attention", "grouped").from_model(series.model, num_kv_heads=series.model.num_attention_heads)


def _one(values: Sequence[int], name: str) -> int:
    if len(values) != 1:
        raise ValueError(f"{name} must be one number; got {list(values)}")
    return values[0]


def _asked(traced: "Traced") -> tuple[tuple[int, ...], int]:
    """Shape of the queries that the step made, and how many keys they were scored against."""
    shape = next(seen.shape for seen in traced.seen if seen.stage == "query" and seen.name == "q")
    lines = traced.scratch or traced.held
    return shape, max(held.slots for held in lines) // shape[0]


def _heading(config: Composed, series: "Series") -> "Part":
    from experiments.telling.explaining.part import Part

    form = f" ({series.spec.form})" if series.spec.form else ""
    how = f"{config.choices['backend']} on {config.choices['storage']}"
    return Part(f"{config.choices['attention']}{form} in {series.model.name}'s place, {how}: one decode step, watched")


def _write(traced: "Traced", out: Path) -> None:
    from experiments.planning.output import write

    write([SimpleNamespace(**{**asdict(seen), **_joined(seen)}) for seen in traced.seen], out, COLUMNS)


def _joined(seen: Any) -> Mapping[str, str]:
    return {"letters": " ".join(letter or "." for letter in seen.letters), "shape": " ".join(map(str, seen.shape))}


def _say(parts: "Sequence[Part]") -> None:
    from experiments.terminal import say, show

    for number, part in enumerate(parts):
        if number and part.text:
            say("")
        if part.text:
            say("\n".join(_wrapped(line) for line in part.text.splitlines()))
        if part.rows:
            show(part.header, part.rows, ["good" if n in part.strong else "plain" for n in range(len(part.rows))])


def _wrapped(line: str) -> str:
    """At most ``WIDTH`` columns; lines that begin with a space are laid out already."""
    hang = "  " if line.startswith("- ") else ""
    return line if line.startswith(" ") else textwrap.fill(line, WIDTH, subsequent_indent=hang)


if __name__ == "__main__":
    main()
