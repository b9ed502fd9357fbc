"""Bytes and FLOPs of every scope that is timed: attend, a step and its parts, a prefill, a step without a cache.

``cost`` counts one decode step; this adds what sees a whole prompt, and what each part of a step contributes. The parts
add up to the step, byte for byte: x belongs to projecting, new entries to appending, the cache with q and o to
attending, y to the output.
"""

from typing import Protocol, Self, TypeVar

from variants.contract.cost import Applied, Matmul, Part, Point, Work, attend_work, keeps_read, matmul_work, step_work
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.keep import All, Window
from variants.contract.layout import CacheLayout

PARTS = ("project", "absorb", "append", "attend", "output")  # of a step, in the order in which they run
WHOLE = ("prefill", "recompute")  # work on all rows of a prompt, each attending to those before it
SCOPES = ("attend", "step", *WHOLE, *(part for part in PARTS if part != "attend"))


class Countable(Protocol):
    """What of a spec decides bytes and FLOPs."""

    @property
    def hidden_size(self) -> int:
        """Model width."""
        ...

    def layout(self, dtype: Dtype) -> CacheLayout:
        """What one token leaves behind."""
        ...

    def geometry(self) -> AttentionGeometry:
        """How that is read."""
        ...

    def matmuls(self) -> tuple[Matmul, ...]:
        """Products with weights."""
        ...

    def prefilling(self) -> Self:
        """The form that prefill uses."""
        ...

    def unpacked(self) -> Self | None:
        """What backends read where the cache is decompressed first."""
        ...


Counted = TypeVar("Counted", bound=Countable)


def scope_work(scope: str, spec: Countable, kv_dtype: Dtype, point: Point) -> Work:
    """Work of one call of ``scope`` at a point; ValueError for a scope that does not exist."""
    layout, geometry, matmuls = spec.layout(kv_dtype), spec.geometry(), spec.matmuls()
    if scope == "attend":
        return attend_work(layout, geometry, matmuls, point)
    if scope == "step":
        return step_work(layout, geometry, matmuls, spec.hidden_size, point)
    if scope == "prefill":
        return prefill_work(spec, kv_dtype, point)
    if scope == "recompute":
        return recompute_work(spec, point)
    if scope in PARTS:
        return _part_work(scope, spec, layout, point)
    raise ValueError(f"scope must be one of {', '.join(SCOPES)}; got {scope!r}")


def part_weights(scope: str, spec: Countable) -> int:
    """Weight elements that a part of a step multiplies by."""
    products = [m for m in spec.matmuls() if _part_of(m) == scope]
    return sum(m.weights for m in products)


def prefill_work(spec: Countable, kv_dtype: Dtype, point: Point) -> Work:
    """All ``context`` tokens of a prompt at once into an empty cache, in the form that prefill uses.

    Weights, x, y, every entry, and q and o of every row once; a query sees the keys up to its own. Keys and values
    decompressed on the way (MLA) are workspace, as they are in a step. ``point.queries`` plays no part.
    """
    form = spec.prefilling()
    return _whole(form, form.unpacked() or form, form.layout(kv_dtype), point)


def recompute_work(spec: Countable, point: Point) -> Work:
    """A step without a cache: every row again, for the layers above need them all.

    As a prefill, but what is made and read are the keys and values themselves, in the activations' dtype.
    """
    form = uncached(spec)
    return _whole(form, form, form.layout(point.dtype), point)


def uncached(spec: Counted) -> Counted:
    """The form of a step without a cache: where nothing is kept there is nothing to compress."""
    form = spec.prefilling()
    return form.unpacked() or form


def causal_pairs(layout: CacheLayout, geometry: AttentionGeometry, tokens: int) -> int:
    """(query, key) pairs of one sequence in which each of ``tokens`` rows sees what is kept of the rows up to itself.

    T (T + 1) / 2 where every token is kept; in closed form for windows too.
    """
    keeps = keeps_read(layout, geometry)
    if all(isinstance(keep, All | Window) for keep in keeps):
        full = min([tokens, *(keep.size for keep in keeps if isinstance(keep, Window))])
        return full * (full + 1) // 2 + (tokens - full) * full
    return sum(min(keep.entries(seen) for keep in keeps) for seen in range(1, tokens + 1))


def _whole(form: Countable, read: Countable, layout: CacheLayout, point: Point) -> Work:
    rows, geometry = point.batch * point.context, read.geometry()
    width = geometry.num_q_heads * (geometry.d_qk + geometry.d_v)
    pairs = point.batch * causal_pairs(layout, geometry, point.context)
    activations = point.dtype.bytes(rows * (2 * form.hidden_size + width)) + int(rows * layout.bytes_per_token)
    return matmul_work(form.matmuls(), rows, point.dtype) + Work(activations, 2 * pairs * width)


def _part_of(product: Matmul) -> str:
    return "attend" if product.applied is Applied.CACHED else product.part.value


def _part_work(scope: str, spec: Countable, layout: CacheLayout, point: Point) -> Work:
    rows = point.batch * point.queries
    products = matmul_work((m for m in spec.matmuls() if _part_of(m) == scope), rows, point.dtype)
    if scope == "append":
        return Work(int(rows * layout.bytes_per_token), 0)
    edge = 0 if scope == Part.ABSORB.value else point.dtype.bytes(rows * spec.hidden_size)  # x, or y
    return products + Work(edge, 0)
