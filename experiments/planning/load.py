"""What many points ask of a device: bytes, FLOPs, tokens walked and query rows, as arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from variants.contract.cost import Matmul, Point, attend_work
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.layout import CacheLayout, Stream

Floats = NDArray[np.float64]
DTYPE = Dtype.BF16  # of every named layout


@dataclass(frozen=True)
class Load:
    """Arrays [n], one entry per point of one layer and one decode step.

    ``io_bytes`` and ``flops`` as ``contract.cost`` counts them, ``context`` tokens that a query attends to, ``rows``
    query rows that share one key/value head.
    """

    io_bytes: Floats
    flops: Floats
    context: Floats
    rows: Floats

    def __getitem__(self, chosen: NDArray[np.bool_]) -> "Load":
        """The points where ``chosen`` is true."""
        return Load(self.io_bytes[chosen], self.flops[chosen], self.context[chosen], self.rows[chosen])


@dataclass(frozen=True)
class Shapes:
    """Points of named layouts, bf16: ``layout`` [n] of names, the numbers as float arrays [n]."""

    layout: NDArray[np.str_]
    q_heads: Floats
    kv_heads: Floats
    batch: Floats
    context: Floats


@dataclass(frozen=True)
class Named:
    """A layout that tables of points name, with one head of each kind. ``shared``: its kv heads are always one."""

    layout: CacheLayout
    geometry: AttentionGeometry
    shared: bool


def _grouped(width: int) -> Named:
    layout = CacheLayout((Stream("key", 1, width, DTYPE), Stream("value", 1, width, DTYPE)))
    geometry = AttentionGeometry(1, 1, (Span("key", 0, width),), (Span("value", 0, width),), width**-0.5)
    return Named(layout, geometry, shared=False)


def _latent(rank: int, rope: int) -> Named:
    layout = CacheLayout((Stream("latent", 1, rank, DTYPE), Stream("rope", 1, rope, DTYPE)), (("latent", "rope"),))
    key = (Span("latent", 0, rank), Span("rope", 0, rope))
    return Named(layout, AttentionGeometry(1, 1, key, key[:1], 192**-0.5), shared=True)


NAMED: Mapping[str, Named] = {"grouped_d128": _grouped(128), "latent_512_64": _latent(512, 64)}


@dataclass(frozen=True)
class _PerHead:
    """Bytes of one cached token per kv head, of q and o per query head, FLOPs per query head and token."""

    token: int
    row: int
    flops: int


@cache
def _per_head(name: str) -> _PerHead:
    """Counted at one head and at one and two tokens: every count is a sum of these three times whole numbers."""
    one, two = (
        attend_work(NAMED[name].layout, NAMED[name].geometry, (), Point(1, context, 1, DTYPE)) for context in (1, 2)
    )
    token = two.io_bytes - one.io_bytes
    return _PerHead(token, one.io_bytes - token, one.flops)


def load_of(name: str, shapes: Shapes) -> Load:
    """The load of points which all have the layout called ``name``."""
    unit = _per_head(name)
    tokens, rows = shapes.batch * shapes.context, shapes.batch * shapes.q_heads
    return Load(
        io_bytes=tokens * shapes.kv_heads * unit.token + rows * unit.row,
        flops=tokens * shapes.q_heads * unit.flops,
        context=shapes.context,
        rows=shapes.q_heads / shapes.kv_heads,
    )


def spec_load(
    layout: CacheLayout, geometry: AttentionGeometry, matmuls: Sequence[Matmul], points: Sequence[Point]
) -> Load:
    """The load of attending at ``points`` of any variant; what a window has dropped is not walked."""
    works = [attend_work(layout, geometry, matmuls, point) for point in points]
    walked = [max(stream.keep.entries(point.context) for stream in layout.streams) for point in points]
    return Load(
        io_bytes=np.array([work.io_bytes for work in works], dtype=np.float64),
        flops=np.array([work.flops for work in works], dtype=np.float64),
        context=np.array(walked, dtype=np.float64),
        rows=np.array([geometry.group_size * point.queries for point in points], dtype=np.float64),
    )
