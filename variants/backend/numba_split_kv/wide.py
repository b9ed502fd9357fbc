"""The kernel for wide groups of bfloat16 on a matrix unit: the same splits and softmax as ``stream``, other products.

Queries and weights are padded with zeros to whole tiles of 16 rows, tokens to whole steps of 32. A block whose tokens
do not follow one another in the cache, or do not fill its last step, is copied together first.
"""

import numpy as np
from numba import njit, prange
from numba.np.ufunc.parallel import get_thread_id

from variants.backend.numba_split_kv.block import MAXIMUM, TOTAL, bounds, locate, soften
from variants.backend.numba_split_kv.coming import fetch
from variants.backend.numba_split_kv.kernel import kernel
from variants.backend.numba_split_kv.matrix import (
    EDGE,
    STEP,
    configure,
    halve,
    release,
    score_tokens,
    turn,
    weave,
    weigh_tokens,
)
from variants.backend.numba_split_kv.operands import SLOT, WIDTH, Array
from variants.backend.numba_split_kv.stream import share

BLOCK = 128  # tokens: enough products per sum that is loaded and stored


@kernel
def wide(
    q: Array, key: Array, tail: Array, value: Array, key_place: Array, tail_place: Array, value_place: Array,
    table: Array, lengths: Array, start: Array, slots: int, window: int, queries: int, chunk: int, scale: float,
    groups: int, splits: int, rows: int, config: Array, weights: Array, narrow: Array, at: Array, scored: Array,
    keys: Array, tails: Array, pairs: Array, sums: Array, state: Array,
) -> None:  # fmt: skip
    """Sums [B x G x splits x M, V] and state [.., (maximum, total)]; M is ``rows`` rounded up to tiles.

    q is [B x G x M / 16, K / 32 x 16 x 16 x 2], as the unit takes its second operand. Workspace per thread: ``weights``
    [M, BLOCK] and ``narrow``, the same in bfloat16; ``at`` [6 x BLOCK]; ``scored`` [STEP, 16]; ``keys`` and ``tails``
    [BLOCK x width]; ``pairs`` [BLOCK / 2, V].
    """
    threads = scored.shape[0] // STEP
    padded, d_v = weights.shape[0] // threads, sums.shape[1]
    for task in prange(lengths.shape[0] * groups * splits):
        head, split, thread = task // splits, task % splits, get_thread_id()
        b, g, out, mine = head // groups, head % groups, task * padded, thread * padded
        here, ahead = thread * 6 * BLOCK, thread * 6 * BLOCK + 3 * BLOCK
        for row in range(out, out + padded):
            state[row, MAXIMUM], state[row, TOTAL] = -np.inf, 0.0
            for c in range(d_v):
                sums[row, c] = 0.0
        configure(config)
        in_one_run = False
        low, high = bounds(lengths[b], start[b], window, queries, split, chunk)
        for first in range(low - BLOCK, high, BLOCK):
            tokens, later = min(BLOCK, high - first), max(0, min(BLOCK, high - first - BLOCK))
            direct = in_one_run and tokens % STEP == 0
            in_one_run = locate(key_place, table, b, slots, g, first + BLOCK, later, at, ahead)
            locate(tail_place, table, b, slots, g, first + BLOCK, later, at, ahead + BLOCK)
            locate(value_place, table, b, slots, g, first + BLOCK, later, at, ahead + 2 * BLOCK)
            if first >= low:
                steps = -(-tokens // STEP)
                if not direct:
                    gather(key, at, here, tokens, key_place[WIDTH], keys, thread * BLOCK)
                    gather(tail, at, here + BLOCK, tokens, tail_place[WIDTH], tails, thread * BLOCK)
                score_block(
                    q, head * (padded // EDGE), key, tail, key_place, tail_place, keys, tails, direct, at, here, ahead,
                    later, steps, scored, weights, thread,
                )  # fmt: skip
                for row in range(rows):
                    last = lengths[b] - queries + row % queries - first
                    soften(weights, mine + row, last, window, tokens, steps * STEP, scale, state, sums, out + row)
                    halve(weights, mine + row, steps * STEP, narrow)
                    begin, end = share(row, 1, rows, later)
                    fetch(value, at, ahead + 2 * BLOCK + begin, ahead + 2 * BLOCK + end, d_v)
                pair(value, at, here + 2 * BLOCK, tokens, steps * STEP, d_v, pairs, thread * (BLOCK // 2))
                for tile in range(0, padded, EDGE):
                    for column in range(0, d_v, 2 * EDGE):
                        weigh_tokens(narrow, mine + tile, steps, pairs, thread * (BLOCK // 2), column, sums, out + tile)
            here, ahead = ahead, here
        release()


@njit(inline="always")
def score_block(
    q: Array, query: int, key: Array, tail: Array, key_place: Array, tail_place: Array, keys: Array, tails: Array,
    direct: bool, at: Array, here: int, ahead: int, later: int, steps: int, scored: Array, weights: Array, thread: int,
) -> None:  # fmt: skip
    """Scores of a block, from the cache or from what was copied of it, in the thread's rows of ``weights``."""
    wide, narrow, tiles = key_place[WIDTH], tail_place[WIDTH], weights.shape[0] // (scored.shape[0] // STEP) // EDGE
    for step in range(steps):
        token = step * STEP
        for tile in range(tiles):
            begin, end = share(step * tiles + tile, 1, steps * tiles, later)
            fetch(key, at, ahead + begin, ahead + end, wide)
            fetch(tail, at, ahead + BLOCK + begin, ahead + BLOCK + end, narrow)
            if direct:
                first, second, rows = at[here + token], at[here + BLOCK + token], (key_place[SLOT], tail_place[SLOT])
                score_step(q, query + tile, key, first, rows[0], tail, second, rows[1], wide, narrow, scored, thread)
            else:
                first, second = (thread * BLOCK + token) * wide, (thread * BLOCK + token) * narrow
                score_step(q, query + tile, keys, first, wide, tails, second, narrow, wide, narrow, scored, thread)
            turn(scored, thread * STEP, weights, (thread * tiles + tile) * EDGE, token)


@njit(inline="always")
def score_step(
    q: Array, tile: int, key: Array, key_first: int, key_stride: int, tail: Array, tail_first: int, tail_stride: int,
    wide: int, narrow: int, scored: Array, thread: int,
) -> None:  # fmt: skip
    """Scores of 32 tokens and 16 rows: keys and tails lie at equal strides."""
    row = thread * STEP
    for t in range(row, row + STEP):
        for r in range(EDGE):
            scored[t, r] = 0.0
    score_tokens(q, tile, 0, wide // STEP, key, key_first, key_stride, scored, row)
    score_tokens(q, tile, wide // STEP, narrow // STEP, tail, tail_first, tail_stride, scored, row)


@njit(inline="always")
def gather(memory: Array, at: Array, first: int, tokens: int, width: int, out: Array, row: int) -> None:
    """Copy rows together; the last step is filled up with zeros."""
    for t in range(-(-tokens // STEP) * STEP):
        to = (row + t) * width
        if t < tokens:
            begin = at[first + t]
            for c in range(width):
                out[to + c] = memory[begin + c]
        else:
            for c in range(width):
                out[to + c] = 0


@njit(inline="always")
def pair(memory: Array, at: Array, first: int, tokens: int, upto: int, width: int, pairs: Array, row: int) -> None:
    """Values of two tokens at a time side by side; zeros beyond the last."""
    for t in range(0, tokens - 1, 2):
        weave(memory, at[first + t], at[first + t + 1], width, pairs, row + t // 2)
    if tokens % 2:
        for c in range(width):
            pairs[row + tokens // 2, c] = memory[at[first + tokens - 1] + c]
    for p in range((tokens + 1) // 2, upto // 2):
        for c in range(width):
            pairs[row + p, c] = 0
