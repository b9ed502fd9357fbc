"""A watched step as plain data: what lies in the cache, what the step made, and what became of it. No torch."""

from dataclasses import dataclass

FATES = {
    "cached": "written to the cache",
    "dropped": "used in this step and gone",
    "again": "made from the cache by weights, anew in every step",
    "copied": "the cache's numbers as this backend wants them, gone after the step",
    "passed on": "the layer's output",
    "kept": "still held by something after the step",
}


@dataclass(frozen=True)
class Held:
    """A stream of the cache after the step, whole batch: ``slots`` entries; ``added`` are the bytes the step wrote."""

    stream: str
    heads: int
    width: int
    dtype: str
    slots: int
    added: int
    held: int


@dataclass(frozen=True)
class Seen:
    """A tensor that the step made, or ``count`` of one name and shape in turn; ``fate`` is one of ``FATES``.

    ``letters`` name the axes where the run says them, else are empty. ``functions``: the calls that made them.
    ``minor``: on the way to something that has a line of its own.
    """

    stage: str
    name: str
    letters: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    count: int
    fate: str
    functions: str
    minor: bool


@dataclass(frozen=True)
class Traced:
    """A watched step. ``allocated``: bytes of the slabs; ``scratch``: where a packed cache is decompressed to."""

    held: tuple[Held, ...]
    seen: tuple[Seen, ...]
    allocated: int
    scratch: tuple[Held, ...]
    kernel: str


Rows = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Attended:
    """What one pass of the toy attended: per head, ``scores`` (scaled, unseen keys -inf) and ``weights`` [Q, T]."""

    form: str | None
    scores: tuple[Rows, ...]
    weights: tuple[Rows, ...]


@dataclass(frozen=True)
class Walk:
    """Three tokens prefilled and one decoded, in numbers.

    ``cache``: per stream and head the rows [T, W] after the fourth token; ``kept``: whether the first three are as the
    prefill left them. ``y`` is the fourth token's output, ``again`` the same without a cache, from all four rows.
    """

    heads: int
    head_dim: int
    kv_heads: int
    score_width: int
    scale: float
    cache: dict[str, tuple[Rows, ...]]
    kept: bool
    prefill: Attended
    decode: Attended
    y: tuple[float, ...]
    again: tuple[float, ...]
