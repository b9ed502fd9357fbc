"""Trainings as rows, in one file per run: what a variant learned of a task from a seed, and what it was."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from experiments import records
from experiments.columns import Row

LEARNED = "learning.jsonl"
SCHEMA = 1
TASKS = ("recall", "text")
STATUSES = ("ok", "error")
_COUNTS = ("steps", "batch", "context", "hidden_size", "layers", "heads", "vocabulary", "mlp_width", "parameters")
_LEARNED = ("loss", "accuracy", "curve", "data")  # what only a training that ended well has


@dataclass(frozen=True, kw_only=True)
class Training(Row):
    """One training. ``loss``: nats per held-out target; ``accuracy``: the share of them that was right.

    ``cache_bytes``: what a token leaves in one layer, by the variant's layout. ``curve``: [step, loss, accuracy] on the
    same held-out data, the last of which are ``loss`` and ``accuracy``. ``data``: a hash of what was seen, equal where
    batches were. ``chance``: accuracy of guessing; None where nothing is known of it. ``key`` hashes all that decides
    the training, ``setting`` what must be alike for variants to be compared. ValueError for a value that cannot be.
    """

    WORD: ClassVar[str] = "training"
    SCHEMA: ClassVar[int] = SCHEMA
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
    curve: tuple[tuple[float, ...], ...] | None = None
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
        self.check_types()
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


def append(folder: Path, row: Training) -> None:
    """Add a row to the folder's file, flushed and synced when this returns."""
    records.append(folder / LEARNED, row)


def read(folder: Path) -> tuple[dict[str, Training], list[str]]:
    """The rows below a folder by key, the last of each, and a warning for each line that is none."""
    return records.last_of_each(folder, LEARNED, Training)


def _check_curve(curve: Sequence[Sequence[float]] | None, steps: int, end: tuple[float | None, float | None]) -> None:
    if curve is None:
        return
    whole = all(len(point) == 3 for point in curve)
    if not whole or [steps, *end] != list(curve[-1]) or [p[0] for p in curve] != sorted({p[0] for p in curve}):
        raise ValueError(f"curve must be [step, loss, accuracy] with rising steps, ending in [{steps}, {end}]")
