"""Workspace and arrays of a planned step; compiling happens here, once per types, and is cached on disk."""

import numba
import torch
from einops import rearrange
from torch import Tensor

from variants.backend.numba_split_kv.combine import combine
from variants.backend.numba_split_kv.operands import operands, split_tokens
from variants.backend.numba_split_kv.stream import stream
from variants.contract.geometry import AttentionGeometry
from variants.protocols import Attended, Plan
from variants.view import CacheView


def plan(geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int, chunk: int | None) -> Plan:
    """The planned ``attend``; it runs on as many threads as torch has now."""
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]  # set when numba starts
    threads = min(torch.get_num_threads(), most)
    batch, groups, rows = len(view.lengths), geometry.num_kv_heads, geometry.group_size * queries
    cache = operands(geometry, view)
    held = cache.held(max_length, queries)
    chunk = split_tokens(chunk, held, batch * groups, threads)
    scaled = torch.zeros(batch, groups, rows, geometry.d_qk)
    sums = torch.empty(batch, groups, rows, -(-held // chunk), geometry.d_v)
    state = torch.empty(*sums.shape[:-1], 2)
    o, lse = torch.empty(batch, groups, rows, geometry.d_v), torch.empty(batch, groups, rows)
    arrays = (cache.key, cache.tail, cache.value, cache.places, cache.table, cache.lengths, cache.start)
    numbers = (cache.slots, cache.window, queries, chunk)

    def run() -> None:
        stream(scaled.numpy(), *arrays, *numbers, sums.numpy(), state.numpy())
        combine(sums.numpy(), state.numpy(), o.numpy(), lse.numpy())

    def attend(q: Tensor) -> Attended:
        scaled.copy_(rearrange(q, "b q (g h) k -> b g (h q) k", g=groups))
        scaled.mul_(geometry.scale)
        numba.set_num_threads(threads)
        run()
        out = rearrange(o.to(q.dtype), "b g (h q) v -> b q (g h) v", q=queries)
        return out, rearrange(lse, "b g (h q) -> b q (g h)", q=queries)

    run()  # compile
    return Plan(attend, f"numba_split_kv[{chunk}]")
