"""Workspace and arrays of a planned step; compiling happens here, once per types, and is cached on disk."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import torch
from einops import rearrange
from torch import Tensor

from variants.backend.numba_split_kv import amx, stream, wide
from variants.backend.numba_split_kv.ahead import EIGHT
from variants.backend.numba_split_kv.columns import EDGE, STEP
from variants.backend.numba_split_kv.combine import combine
from variants.backend.numba_split_kv.operands import WIDTH, Array, Operand, Operands, operands, split_tokens
from variants.contract.geometry import AttentionGeometry
from variants.protocols import Attended, Plan
from variants.view import CacheView

LEAST_ROWS = 5  # of a group: below that, most of a matrix unit's 16 rows would be idle


@dataclass(frozen=True)
class Sizes:
    """What a plan is made for; ``most`` threads may need workspace."""

    batch: int
    groups: int
    queries: int
    rows: int
    d_qk: int
    d_v: int
    splits: int
    most: int

    @property
    def padded(self) -> int:
        """Rows in whole tiles of a matrix unit."""
        return -(-self.rows // EDGE) * EDGE


def plan(geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int, chunk: int | None) -> Plan:
    """The planned ``attend``; it runs on as many threads as torch has now."""
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba starts
    threads = min(torch.get_num_threads(), most)
    batch, groups, rows = len(view.lengths), geometry.num_kv_heads, geometry.group_size * queries
    cache = operands(geometry, view)
    held = cache.held(max_length, queries)
    on_matrix = _fits_matrix(cache, rows, geometry.d_v)
    chunk = split_tokens(chunk, held, batch * groups, threads)
    sizes = Sizes(batch, groups, queries, rows, geometry.d_qk, geometry.d_v, -(-held // chunk), most)
    numbers = (cache.slots, cache.window, queries, chunk, np.float32(geometry.scale), groups, sizes.splits)
    arguments = (cache.table, cache.lengths, cache.start, *numbers)
    load, run = (_matrix_kernel if on_matrix else _stream_kernel)(sizes, cache, arguments)
    o, lse = torch.empty(batch, groups, rows, geometry.d_v), torch.empty(batch, groups, rows)
    flat_o, flat_lse = o.view(-1, geometry.d_v).numpy(), lse.view(-1).numpy()
    seen_o, seen_lse = (rearrange(part, "b g (h q) ... -> b q (g h) ...", q=queries) for part in (o, lse))  # views

    def attend(q: Tensor) -> Attended:
        rows = load(q)
        numba.set_num_threads(threads)
        run(rows, flat_o, flat_lse)
        torch.set_num_threads(threads)  # numba has told OpenMP its own number, which torch would take for its own
        return seen_o.to(q.dtype), seen_lse

    dtype = torch.bfloat16 if on_matrix else torch.float32
    attend(torch.zeros(batch, queries, geometry.num_q_heads, geometry.d_qk, dtype=dtype))  # compile
    return Plan(attend, f"numba_split_kv[{chunk}{', matrix unit' if on_matrix else ''}]", shows=())


Load = Callable[[Tensor], Array]
Run = Callable[[Array, Array, Array], None]


def _fits_matrix(cache: Operands, rows: int, d_v: int) -> bool:
    """Whether the matrix unit serves: there is one, bfloat16, enough rows, and widths in whole steps."""
    widths = (int(cache.key.place[WIDTH]), int(cache.tail.place[WIDTH]), d_v)
    whole = all(width % STEP == 0 for width in widths)
    return cache.key.memory.dtype == np.uint16 and rows >= LEAST_ROWS and whole and amx.ready()


def _stream_kernel(sizes: Sizes, cache: Operands, arguments: tuple[Any, ...]) -> tuple[Load, Run]:
    """How to hand it q [B, Q, H, K], and how to run it on that."""
    heads = sizes.batch * sizes.groups
    q = torch.zeros(sizes.batch, sizes.groups, sizes.rows, sizes.d_qk)
    sums = np.empty((heads * sizes.splits * sizes.rows, sizes.d_v), np.float32)
    state = np.empty((len(sums), 2), np.float32)
    weights = np.empty((sizes.most * sizes.rows, stream.BLOCK), np.float32)
    at = np.empty(sizes.most * 2 * stream.PARTS * stream.BLOCK, np.int64)
    columns = sizes.d_qk + sizes.d_v if cache.key.coded or cache.value.coded else 1
    decoded = np.empty(sizes.most * stream.BLOCK * columns, np.float32)
    rows = q.view(-1, sizes.d_qk).numpy()
    kernel: Any = stream.stream  # numba's types do not know unpacked arguments
    parts = (cache.key, cache.tail, cache.value, cache.key_scale, cache.value_scale)
    caches = (*(p.memory for p in parts), *(p.place for p in parts), *cache.blocks, cache.fp8, cache.value_in_key)

    def load(new: Tensor) -> Array:
        q.copy_(rearrange(new, "b q (g h) k -> b g (h q) k", g=sizes.groups))
        return rows

    def run(rows: Array, o: Array, lse: Array) -> None:
        kernel(rows, *caches, *arguments, weights, at, decoded, sums, state)
        combine(sums, state, sizes.splits, sizes.rows, sizes.rows, o, lse)

    return load, run


def _matrix_kernel(sizes: Sizes, cache: Operands, arguments: tuple[Any, ...]) -> tuple[Load, Run]:
    """The same on a matrix unit, which reads q where it lies."""
    most, block, padded, d_v = sizes.most, wide.BLOCK, sizes.padded, sizes.d_v
    tiles, words, lines = padded // EDGE, amx.WORDS, max(block * (sizes.d_qk + d_v) // STEP, padded)
    sums = _aligned((sizes.batch * sizes.groups * sizes.splits * padded, d_v), torch.float32)
    state = np.empty((len(sums), 2), np.float32)
    workspace = (
        _aligned((most * tiles, sizes.d_qk // STEP * words), torch.uint32),
        _aligned((most * 6 * block,), torch.int64),
        _aligned((most * (lines + EIGHT),), torch.int64),
        _aligned((most * block * sizes.d_qk,), torch.uint16),
        _aligned((most * block * sizes.d_qk,), torch.uint16),
        _aligned((most * tiles * block, EDGE), torch.float32),
        _aligned((most * tiles * wide.STEPS, words), torch.uint32),
        _aligned((most * 2 * wide.STEPS, words), torch.uint32),
        _aligned((most * tiles * d_v // EDGE, words), torch.float32),
        _aligned((3, most * padded), torch.float32),
    )
    config, heads = amx.configuration(), sizes.groups * (sizes.rows // sizes.queries)
    kernel: Any = wide.wide
    parts = (cache.key, cache.tail, cache.value)
    caches = (*(p.memory for p in parts), *(p.place for p in parts))
    in_key = _inside(cache.value, cache.key)

    def load(q: Tensor) -> Array:
        flat: Array = q.contiguous().view(-1).view(torch.uint16).numpy()
        return flat

    def run(q: Array, o: Array, lse: Array) -> None:
        kernel(q, *caches, *arguments, heads, in_key, config, *workspace, sums, state)
        combine(sums, state, sizes.splits, sizes.rows, padded, o, lse)

    return load, run


def _inside(inner: Operand, outer: Operand) -> bool:
    """Whether every row of one operand lies within the other's, so that it need not be fetched again."""
    offset = (inner.memory.ctypes.data - outer.memory.ctypes.data) // outer.memory.itemsize
    same = bool((inner.place[:WIDTH] == outer.place[:WIDTH]).all())
    return same and 0 <= offset <= int(outer.place[WIDTH] - inner.place[WIDTH])


def _aligned(shape: tuple[int, ...], dtype: torch.dtype) -> Array:
    """Workspace whose rows begin at cache lines, as tiles want them: torch aligns what it allocates, numpy does not."""
    return torch.empty(shape, dtype=dtype).numpy()
