"""How a layout is read back as keys and values: spans of its streams, head counts and the softmax scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from variants.contract.dtype import Dtype
from variants.contract.layout import CacheLayout


@dataclass(frozen=True, order=True)
class Span:
    """Columns ``[start, stop)`` of every head of a stream."""

    stream: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"span of {self.stream!r} must have 0 <= start < stop; got [{self.start}, {self.stop})")

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.stop - self.start


@dataclass(frozen=True)
class AttentionGeometry:
    """``num_q_heads`` queries read ``num_kv_heads`` keys and values; query head h uses head h // group_size.

    ``key`` and ``value`` are spans laid end to end. A span of a one-head stream is broadcast to every kv head (MLA's
    and GTA's shared RoPE key). ``scale`` multiplies q.k before the softmax and has no default: absorbed MLA scores are
    576 wide but scaled by 192^-0.5.
    Raises ValueError naming both numbers if the heads do not divide, or if scale is not a positive number.
    """

    num_q_heads: int
    num_kv_heads: int
    key: tuple[Span, ...]
    value: tuple[Span, ...]
    scale: float

    def __post_init__(self) -> None:
        check_heads(self.num_q_heads, self.num_kv_heads)
        if not self.key or not self.value:
            raise ValueError("a geometry needs at least one key span and one value span")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale must be a positive number; got {self.scale!r}")

    @property
    def d_qk(self) -> int:
        """Width of a score's dot product."""
        return sum(span.width for span in self.key)

    @property
    def d_v(self) -> int:
        """Width of a value, and of the output of one head."""
        return sum(span.width for span in self.value)

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_q_heads // self.num_kv_heads

    @property
    def shares_state(self) -> bool:
        """Whether every value column is also a key column, so that one read serves both."""
        return all(any(_inside(v, k) for k in self.key) for v in self.value)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams read, each once."""
        return tuple(dict.fromkeys(span.stream for span in (*self.key, *self.value)))

    def check(self, layout: CacheLayout) -> None:
        """Raise ValueError unless every span lies inside its stream and its heads are num_kv_heads or 1."""
        for span in (*self.key, *self.value):
            stream = layout.stream(span.stream)
            if span.stop > stream.width:
                raise ValueError(f"span {span} must end within stream width {stream.width}")
            if stream.heads not in (1, self.num_kv_heads):
                raise ValueError(
                    f"stream {stream.name!r} must have 1 or num_kv_heads={self.num_kv_heads} heads; got {stream.heads}"
                )


@dataclass(frozen=True)
class Run:
    """Bytes ``[start, stop)`` of every row of the ``slab``-th slab, all of one dtype."""

    slab: int
    start: int
    stop: int
    dtype: Dtype


def one_run(layout: CacheLayout, spans: Sequence[Span]) -> Run | None:
    """Where ``spans`` lie if they lie end to end in one row with one dtype, so that one strided view covers them."""
    places = [_place(layout, span) for span in spans]
    joined = all(a.slab == b.slab and a.stop == b.start and a.dtype is b.dtype for a, b in pairwise(places))
    return Run(places[0].slab, places[0].start, places[-1].stop, places[0].dtype) if joined else None


def one_view_each(layout: CacheLayout, geometry: AttentionGeometry) -> bool:
    """Whether K is one strided view and V another: spans end to end in one row, and a row per kv head."""
    shared = any(layout.stream(name).heads != geometry.num_kv_heads for name in geometry.streams)
    return not shared and all(one_run(layout, spans) for spans in (geometry.key, geometry.value))


def _place(layout: CacheLayout, span: Span) -> Run:
    dtype = layout.stream(span.stream).dtype
    for index, slab in enumerate(layout.slabs()):
        if span.stream in slab.offsets:
            row = slab.offsets[span.stream]
            return Run(index, row + dtype.bytes(span.start), row + dtype.bytes(span.stop), dtype)
    raise KeyError(f"no stream {span.stream!r} in this layout")


def check_heads(num_q_heads: int, shared: int, name: str = "num_kv_heads") -> None:
    """Raise ValueError naming both unless ``shared`` >= 1, which is called ``name``, divides ``num_q_heads``."""
    if shared < 1 or num_q_heads < 1 or num_q_heads % shared:
        raise ValueError(
            f"{name} must be at least 1 and divide num_q_heads; got num_q_heads={num_q_heads}, {name}={shared}"
        )


def check_tp(num_q_heads: int, tp: int) -> None:
    """Raise ValueError naming both unless ``tp`` >= 1 divides ``num_q_heads``; query heads are never split."""
    if tp < 1 or num_q_heads % tp:
        raise ValueError(f"tp must be at least 1 and divide num_q_heads; got num_q_heads={num_q_heads}, tp={tp}")


def heads_per_rank(name: str, heads: int, tp: int) -> int:
    """Heads that one of ``tp`` ranks stores: split evenly, or one each and stored tp / heads times; else ValueError."""
    if heads % tp and tp % heads:
        raise ValueError(f"tp must divide {name} or be its multiple; got {name}={heads}, tp={tp}")
    return max(1, heads // tp)


def _inside(inner: Span, outer: Span) -> bool:
    return inner.stream == outer.stream and outer.start <= inner.start and inner.stop <= outer.stop
