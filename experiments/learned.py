"""Trainings as rows, in one file per run: what a variant learned of a task from a seed, and what it was."""

import json
import math
import types
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, get_args, get_origin, get_type_hints

from experiments.records import append_lines

LEARNED = "learning.jsonl"
SCHEMA = 1
TASKS = ("recall", "text")
STATUSES = ("ok", "error")
_COUNTS = ("steps", "batch", "context", "hidden_size", "layers", "heads", "vocabulary", "mlp_width", "parameters")
_LEARNED = ("loss", "accuracy", "curve", "data")  # what only a training that ended well has


@dataclass(frozen=True, kw_only=True)
class Training:
    """One training. ``loss``: nats per held-out target; ``accuracy``: the share of them that was right.

    ``cache_bytes``: what a token leaves in one layer, by the variant's layout. ``curve``: [step, loss, accuracy] on the
    same held-out data, the last of which are ``loss`` and ``accuracy``. ``data``: a hash of what was seen, equal where
    batches were. ``chance``: accuracy of guessing; None where nothing is known of it. ``key`` hashes all that decides
    the training, ``setting`` what must be alike for variants to be compared. ValueError for a value that cannot be.
    """

    key: str
    setting: str
    schema: int = SCHEMA
    study: str
    attention: str
    kind: str
    task: str
    seed: int
    steps: int
    batch: int
    context: int
    pairs: int | None = None
    learning_rate: float
    hidden_size: int
    layers: int
    heads: int
    vocabulary: int
    mlp_width: int
    parameters: int
    baseline: str
    cache_bytes: float
    dtype: str
    chance: float | None = None
    status: str
    reason: str | None = None
    loss: float | None = None
    accuracy: float | None = None
    curve: list[list[float]] | None = None
    data: str | None = None
    seconds: float | None = None
    threads: int | None = None
    device: str
    host: str
    versions: str
    commit: str
    command: str
    started_at: str

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name))
        for name, allowed in (("task", TASKS), ("status", STATUSES), ("schema", (SCHEMA,))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}; got {getattr(self, name)!r}")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1; got {getattr(self, name)}")
        if (self.status == "ok") != (self.reason is None):
            raise ValueError(f"status {self.status} {'has no' if self.status == 'ok' else 'needs a'} reason")
        told = [name for name in _LEARNED if getattr(self, name) is not None]
        if len(told) != (len(_LEARNED) if self.status == "ok" else 0):
            raise ValueError(f"status {self.status} has {'all' if self.status == 'ok' else 'none'} of {_LEARNED}")
        if self.accuracy is not None and not 0 <= self.accuracy <= 1:
            raise ValueError(f"accuracy must be from 0 to 1; got {self.accuracy}")
        _check_curve(self.curve, self.steps, (self.loss, self.accuracy))

    def to_json(self) -> str:
        """One line of strict JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json.dumps(values, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse one line; ValueError if it is torn or no such row."""
        raw = json.loads(line, parse_constant=_no_constant)
        if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
            raise ValueError(f"expected a training of schema {SCHEMA}; got {line[:60]!r}")
        if unknown := set(raw) - {field.name for field in fields(cls)}:
            raise ValueError(f"a training has no columns {sorted(unknown)}")
        try:
            return cls(**raw)
        except TypeError as error:
            raise ValueError(f"a training lacks columns: {error}") from None


@dataclass(frozen=True)
class Read:
    """The last row of each key, in file order, and a warning for each line that is none."""

    rows: tuple[Training, ...]
    warnings: tuple[str, ...]


def append(folder: Path, *rows: Training) -> None:
    """Add rows to a run's file and bring them to the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    append_lines(folder / LEARNED, *(row.to_json() for row in rows))


def read(folder: Path) -> Read:
    """What a run's folder holds; nothing if there is no such file."""
    path = folder / LEARNED
    rows: dict[str, Training] = {}
    warnings = []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], start=1):
        if not line.strip():
            continue
        try:
            row = Training.from_json(line.decode())
        except ValueError as error:
            warnings.append(f"{path}:{number}: skipped a line: {error}")
        else:
            rows[row.key] = row
    return Read(tuple(rows.values()), tuple(warnings))


def _check(name: str, value: Any) -> None:
    """Of the annotated type; numbers finite."""
    allowed = _TYPES[name]
    if type(value) not in allowed and not (type(value) is int and float in allowed):
        raise ValueError(f"{name} must be {' or '.join(t.__name__ for t in allowed)}; got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite; got {value!r}")


def _check_curve(curve: Any, steps: int, end: tuple[float | None, float | None]) -> None:
    if curve is None:
        return
    whole = all(isinstance(point, list) and len(point) == 3 for point in curve)
    if not whole or [steps, *end] != list(curve[-1]) or [p[0] for p in curve] != sorted({p[0] for p in curve}):
        raise ValueError(f"curve must be [step, loss, accuracy] with rising steps, ending in [{steps}, {end}]")


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _types() -> dict[str, tuple[type, ...]]:
    hints = get_type_hints(Training)
    each = {name: get_args(hint) if isinstance(hint, types.UnionType) else (hint,) for name, hint in hints.items()}
    return {name: tuple(get_origin(kind) or kind for kind in kinds) for name, kinds in each.items()}


_TYPES = _types()
