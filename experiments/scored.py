"""One row per scored model: what its attention caches, and how well it foretells held-out text. No torch.

Rows of quality are no timed rows, and lie in a file of their own, ``quality.jsonl``; as there, every row is brought to
the disk before the next one is computed, and of one key the last row counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from experiments import records
from experiments.columns import Row
from experiments.record import point_key

SCORED = "quality.jsonl"
LOSSES = "losses"  # the folder beside it
SCHEMA = 1
METHODS = ("original", "repeat", "mean_pool", "low_rank")
SAME = 1e-9  # relative: a mean that was written and one that is computed again


@dataclass(frozen=True, kw_only=True)
class Scored(Row):
    """A checkpoint with one attention in the place of its own, scored on held-out text.

    ``label`` tells variants of one kind apart (``mla (96 + 32)``: latent and rotary columns). ``bytes_per_token`` are
    one layer's, in ``dtype``. ``steps`` of distillation per layer came before the score: 0 for a conversion as it is,
    which is a row of its own. ``nll`` and ``kl`` are nats per token, one mean for each window of ``window`` tokens, the
    first of which is foretold by nothing and not scored; ``perplexity`` is exp of the mean ``nll``, ``divergence`` the
    mean ``kl`` from the original's distribution. ``layer_error``: mean over layers of the relative error of outputs on
    the calibration text. ``loss_first`` and ``loss_last``: means over layers of the first and last steps' losses, whose
    curves are ``losses/<key>.npy``, [layers, steps]. Raises ValueError for numbers that contradict each other.
    """

    WORD: ClassVar[str] = "score"
    SCHEMA: ClassVar[int] = SCHEMA
    key: str
    schema: int = SCHEMA
    checkpoint: str
    note: str
    attention: str
    label: str
    method: str
    exact: bool
    layers: int
    bytes_per_token: float
    dtype: str
    corpus: str
    window: int
    nll: tuple[float, ...]
    kl: tuple[float, ...]
    perplexity: float
    divergence: float
    layer_error: float | None = None
    calibration_tokens: int = 0
    training_tokens: int = 0
    steps: int = 0
    learning_rate: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    seed: int
    seconds: float
    device: str
    threads: int
    versions: str
    commit: str
    command: str
    started_at: str

    def __post_init__(self) -> None:
        self.check_types()
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")
        if not self.nll or len(self.nll) != len(self.kl):
            raise ValueError(f"nll and kl must have one value per window; got {len(self.nll)} and {len(self.kl)}")
        if not math.isclose(self.perplexity, perplexity(self.nll), rel_tol=SAME):
            raise ValueError(f"perplexity must be exp of the mean nll, {perplexity(self.nll)}; got {self.perplexity}")
        if not math.isclose(self.divergence, _mean(self.kl), rel_tol=SAME):
            raise ValueError(f"divergence must be the mean kl, {_mean(self.kl)}; got {self.divergence}")
        if (self.steps > 0) != (self.loss_last is not None):
            raise ValueError(f"a row has losses where it has steps; got steps={self.steps}, loss_last={self.loss_last}")

    @property
    def tokens(self) -> int:
        """Tokens that were foretold."""
        return len(self.nll) * (self.window - 1)


def score_key(identity: Mapping[str, Any]) -> str:
    """Hash of everything that decides a score; equal settings give equal keys on every machine."""
    return point_key({"scored": SCHEMA, **identity})


def perplexity(nll: Sequence[float]) -> float:
    """Of windows of one length, given the mean nats per token of each."""
    return math.exp(_mean(nll))


def append(folder: Path, row: Scored) -> None:
    """Add a row to the folder's file, flushed and synced when this returns."""
    records.append(folder / SCORED, row)


def read(folder: Path) -> tuple[dict[str, Scored], list[str]]:
    """The rows below a folder by key, the last of each, and a warning for each line that is none."""
    return records.last_of_each(folder, SCORED, Scored)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
