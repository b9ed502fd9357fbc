"""The kernel for any CPU: every (sequence, kv head, split) streams its run of tokens once, for all rows of the head."""

import numpy as np
from numba import njit, prange
from numba.np.ufunc.parallel import get_thread_id

from variants.backend.numba_split_kv.block import MAXIMUM, TOTAL, bounds, locate, soften
from variants.backend.numba_split_kv.codes import decode, source
from variants.backend.numba_split_kv.kernel import FAST, kernel
from variants.backend.numba_split_kv.operands import WIDTH, Array
from variants.backend.numba_split_kv.score import score
from variants.backend.numba_split_kv.vectors import LINE, few
from variants.backend.numba_split_kv.weigh import weigh

BLOCK = 64  # tokens: their keys and values stay in the second-level cache, their scores in the first
PIECE = 16  # tokens whose keys meet all query rows while they are in the first-level cache
PARTS = 5  # of a block that have places: key, tail, value, and the scales of key and value
KEY, TAIL, VALUE, KEY_SCALE, VALUE_SCALE = (part * BLOCK for part in range(PARTS))


@kernel
def stream(
    q: Array, key: Array, tail: Array, value: Array, key_scale: Array, value_scale: Array, key_place: Array,
    tail_place: Array, value_place: Array, key_scale_place: Array, value_scale_place: Array, key_block: int,
    value_block: int, fp8: bool, value_in_key: bool, table: Array, lengths: Array, start: Array, slots: int,
    window: int, queries: int, chunk: int, scale: float, groups: int, splits: int, weights: Array, at: Array,
    decoded: Array, sums: Array, state: Array,
) -> None:  # fmt: skip
    """Sums [B x G x splits x M, V] and state [.., (maximum, total)] of queries [B x G x M, K].

    Workspace per thread: ``weights`` [M, BLOCK], ``at`` [2, PARTS x BLOCK] and, for codes, ``decoded`` [BLOCK, K + V].
    """
    threads, wide, narrow, d_v = at.shape[0] // (2 * PARTS * BLOCK), key_place[WIDTH], tail_place[WIDTH], sums.shape[1]
    rows, keys, values = weights.shape[0] // threads, source(key, decoded), source(value, decoded)
    for task in prange(lengths.shape[0] * groups * splits):
        head, split, thread = task // splits, task % splits, get_thread_id()
        b, g, mine, out = head // groups, head % groups, thread * rows, task * rows
        here, ahead = thread * 2 * PARTS * BLOCK, (thread * 2 + 1) * PARTS * BLOCK
        free = thread * (decoded.shape[0] // threads)
        for row in range(out, out + rows):
            state[row, MAXIMUM], state[row, TOTAL] = -np.inf, 0.0
            for c in range(d_v):
                sums[row, c] = 0.0
        low, high = bounds(lengths[b], start[b], window, queries, split, chunk)
        for first in range(low - BLOCK, high, BLOCK):
            tokens, later = min(BLOCK, high - first), max(0, min(BLOCK, high - first - BLOCK))
            locate(key_place, table, b, slots, g, first + BLOCK, later, at, ahead + KEY)
            locate(tail_place, table, b, slots, g, first + BLOCK, later, at, ahead + TAIL)
            locate(value_place, table, b, slots, g, first + BLOCK, later, at, ahead + VALUE)
            locate(key_scale_place, table, b, slots, g, first + BLOCK, later, at, ahead + KEY_SCALE)
            locate(value_scale_place, table, b, slots, g, first + BLOCK, later, at, ahead + VALUE_SCALE)
            if first >= low:
                for row in range(mine, mine + rows):
                    for t in range(BLOCK):
                        weights[row, t] = 0.0
                decode(key, at, here + KEY, tokens, wide, key_scale, here + KEY_SCALE, key_block, fp8, decoded, free)
                if value_in_key:
                    for t in range(tokens):
                        at[here + VALUE + t] = at[here + KEY + t]
                else:
                    decode(
                        value, at, here + VALUE, tokens, d_v, value_scale, here + VALUE_SCALE, value_block, fp8,
                        decoded, free + BLOCK * wide,
                    )  # fmt: skip
                score_block(
                    q, head * rows, 0, keys, at, here + KEY, tokens, wide, weights, mine, rows, key, ahead + KEY, later
                )
                score_block(
                    q, head * rows, wide, tail, at, here + TAIL, tokens, narrow, weights, mine, rows, tail,
                    ahead + TAIL, later,
                )  # fmt: skip
                for row in range(rows):
                    last = lengths[b] - queries + row % queries - first
                    soften(weights, mine + row, last, window, tokens, tokens, scale, state, sums, out + row)
                weigh_block(
                    weights, mine, values, at, here + VALUE, tokens, d_v, sums, out, rows, value, ahead + VALUE, later
                )
            here, ahead = ahead, here


@njit(fastmath=FAST, inline="always")
def score_block(
    q: Array, q_row: int, column: int, memory: Array, at: Array, first: int, tokens: int, width: int, scores: Array,
    row: int, rows: int, cache: Array, ahead: int, later: int,
) -> None:  # fmt: skip
    """scores [M, tokens] += columns of q [M, K] . rows of memory, a few rows of q and a piece of the block at a time.

    Meanwhile the ``later`` tokens that come next are fetched, every few rows of q some columns of them.
    """
    for start in range(0, tokens, PIECE):
        done, stop = 0, min(start + PIECE, tokens)
        while done < rows:
            count = few(rows - done)
            begin, end = columns(cache, width, done, count, rows) if later > 0 else (0, 0)
            score(
                q, q_row + done, count, column, memory, at, first, start, stop, width, scores, row + done, cache, ahead,
                begin, end,
            )  # fmt: skip
            done += count


@njit(fastmath=FAST, inline="always")
def weigh_block(
    weights: Array, row: int, memory: Array, at: Array, first: int, tokens: int, width: int, sums: Array, out: int,
    rows: int, cache: Array, ahead: int, later: int,
) -> None:  # fmt: skip
    """sums [M, V] += weights [M, tokens] . rows of memory; fetches as ``score_block`` does."""
    for start in range(0, tokens, PIECE):
        done, stop = 0, min(start + PIECE, tokens)
        while done < rows:
            count = few(rows - done)
            begin, end = columns(cache, width, done, count, rows) if later > 0 else (0, 0)
            weigh(
                weights, row + done, count, memory, at, first, start, stop, width, sums, out + done, cache, ahead,
                begin, end,
            )  # fmt: skip
            done += count


@njit(inline="always")
def columns(cache: Array, width: int, done: int, count: int, rows: int) -> tuple[int, int]:
    """Of a row's columns those to fetch with ``count`` of the query rows, in whole lines: evenly, not to hold it up."""
    line = LINE // cache.itemsize
    lines = -(-width // line)
    return lines * done // rows * line, lines * (done + count) // rows * line
