"""Bytes, FLOPs and the roofline floor of one point, counted once for every wing.

All figures are for one layer, the whole batch, one decode step of ``queries`` new tokens after which ``context`` tokens
are cached. They follow from layout, geometry and the variant's matmuls; no variant has a formula of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.keep import Keep
from variants.contract.layout import CacheLayout


class Applied(Enum):
    """How often a step runs a matmul: once per new token, or once per cached token it reads."""

    NEW = "new"
    CACHED = "cached"


class Part(Enum):
    """Which part of a step a product belongs to; products applied to cached tokens belong to attending."""

    PROJECT = "project"  # makes queries and entries from x
    ABSORB = "absorb"  # takes queries into the width of what is cached, and attended values out of it
    OUTPUT = "output"


@dataclass(frozen=True)
class Matmul:
    """``heads`` independent products of an ``inner`` vector with an ``inner x outer`` weight."""

    name: str
    inner: int
    outer: int
    heads: int = 1
    applied: Applied = Applied.NEW
    part: Part = Part.PROJECT

    @property
    def weights(self) -> int:
        """Weight elements."""
        return self.heads * self.inner * self.outer


@dataclass(frozen=True)
class Point:
    """Where a step stands: sequences, cached tokens each (the new ones included), new tokens each, activation dtype."""

    batch: int
    context: int
    queries: int
    dtype: Dtype

    def __post_init__(self) -> None:
        if not (self.batch >= 1 and 1 <= self.queries <= self.context):
            raise ValueError(
                "batch must be >= 1 and 1 <= queries <= context; "
                f"got batch={self.batch}, queries={self.queries}, context={self.context}"
            )


@dataclass(frozen=True)
class Work:
    """What a scope must move and compute: logical bytes (each cached byte once) and floating-point operations."""

    io_bytes: int
    flops: int

    def __add__(self, other: "Work") -> "Work":
        return Work(self.io_bytes + other.io_bytes, self.flops + other.flops)


def cache_bytes(layout: CacheLayout, point: Point) -> int:
    """Logical bytes cached by the whole batch; scales count, padding does not."""
    return point.batch * layout.bytes(point.context)


def attend_work(layout: CacheLayout, geometry: AttentionGeometry, matmuls: Iterable[Matmul], point: Point) -> Work:
    """Reading the cache as keys and values: cache, q and o once; 2 FLOPs per multiply-add, causal among new tokens.

    A matmul applied to cached tokens (MLA's per-step decompression) belongs here: without it there is nothing to read.
    """
    rows = point.batch * point.queries
    seen = sum(_seen(layout, geometry, point.context - later) for later in range(point.queries))
    width = geometry.d_qk + geometry.d_v
    q_and_o = point.dtype.bytes(rows * geometry.num_q_heads * width)
    scores = 2 * point.batch * seen * geometry.num_q_heads * width
    unpack = matmul_work((m for m in matmuls if m.applied is Applied.CACHED), point.batch * point.context, point.dtype)
    return Work(cache_bytes(layout, point) + q_and_o, scores) + unpack


def _seen(layout: CacheLayout, geometry: AttentionGeometry, tokens: int) -> int:
    """Keys that the newest of ``tokens`` tokens attends to: those that every stream read has kept.

    Keys decompressed from a packed layout are no stream of it; they cover what its streams have kept.
    """
    return min(keep.entries(tokens) for keep in keeps_read(layout, geometry))


def keeps_read(layout: CacheLayout, geometry: AttentionGeometry) -> list[Keep]:
    """What the streams that a geometry reads keep; those of the whole layout where it reads none of them."""
    return [s.keep for s in [s for s in layout.streams if s.name in geometry.streams] or layout.streams]


def step_work(
    layout: CacheLayout, geometry: AttentionGeometry, matmuls: Iterable[Matmul], hidden_size: int, point: Point
) -> Work:
    """A whole step: projections (weights once for the batch), append, attend, output; x in and y out once."""
    matmuls = tuple(matmuls)
    rows = point.batch * point.queries
    projections = matmul_work((m for m in matmuls if m.applied is Applied.NEW), rows, point.dtype)
    appended = int(rows * layout.bytes_per_token)  # a full window overwrites as many bytes as it would add
    edges = Work(point.dtype.bytes(2 * rows * hidden_size) + appended, 0)
    return attend_work(layout, geometry, matmuls, point) + projections + edges


def matmul_work(matmuls: Iterable[Matmul], rows: int, dtype: Dtype) -> Work:
    """Products of ``rows`` vectors: every weight once, 2 FLOPs per multiply-add."""
    total = Work(0, 0)
    for m in matmuls:
        total += Work(dtype.bytes(m.weights), 2 * rows * m.weights)
    return total


@dataclass(frozen=True)
class Floor:
    """The shortest time the hardware's ceilings allow, and which ceiling binds."""

    us: float
    bound: str  # "memory" or "compute"


def roofline(work: Work, read_gbps: float, matmul_tflops: float) -> Floor:
    """max(bytes / bandwidth, FLOPs / rate); ceilings in decimal GB/s and TFLOP/s (Williams et al. 2009, eq. 1)."""
    memory_us = work.io_bytes / (read_gbps * 1e3)
    compute_us = work.flops / (matmul_tflops * 1e6)
    return Floor(max(memory_us, compute_us), "memory" if memory_us >= compute_us else "compute")
