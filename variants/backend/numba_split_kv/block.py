"""What every kernel does with a block of tokens besides multiplying: find it, and turn scores into weights."""

import math

import numpy as np
from numba import njit

from variants.backend.numba_split_kv.kernel import FAST
from variants.backend.numba_split_kv.operands import HEAD, PAGE, SLOT, WIDTH, Array
from variants.backend.numba_split_kv.softmax import exponentials, largest

LOWEST = np.float32(np.finfo(np.float32).min)
MAXIMUM, TOTAL = 0, 1  # columns of a row's state


@njit(fastmath=FAST, inline="always")
def bounds(length: int, start: int, window: int, queries: int, split: int, chunk: int) -> tuple[int, int]:
    """Tokens [low, high) that a split reads: its share of those that some query sees."""
    oldest = max(start, length - queries + 1 - window) if window > 0 else start
    low = oldest + split * chunk
    return low, min(low + chunk, length)


@njit(fastmath=FAST, inline="always")
def locate(
    place: Array, table: Array, b: int, slots: int, g: int, first: int, tokens: int, at: Array, begin: int
) -> bool:
    """at[begin + t]: where the row of token ``first`` + t begins. True if they follow one another without a gap.

    Nothing is written where there is no such operand.
    """
    t, run = 0 if place[WIDTH] else tokens, tokens
    while t < tokens:
        slot = (first + t) % slots
        page = np.int64(table[b, min((first + t) // slots, table.shape[1] - 1)])
        run = min(tokens - t, slots - slot)
        row = page * place[PAGE] + g * place[HEAD] + slot * place[SLOT]
        for i in range(run):
            at[begin + t + i] = row + i * place[SLOT]
        t += run
    return run == tokens


@njit(fastmath=FAST, inline="always")
def soften(
    weights: Array, row: int, last: int, window: int, tokens: int, upto: int, scale: float, state: Array, sums: Array,
    out: int,
) -> None:  # fmt: skip
    """Scores of one row to weights against its running maximum; earlier sums are rescaled, unseen tokens get 0.

    The row sees tokens up to ``last``, the newest ``window`` of them unless that is 0. Weights are set up to ``upto``,
    at least ``tokens``; ``out`` is the row of state and sums. The online softmax of FlashAttention (Dao et al. 2022,
    algorithm 1).
    """
    stop = max(min(last + 1, tokens), 0)
    begin = max(last + 1 - window, 0) if window > 0 else 0
    before = state[out, MAXIMUM]
    highest = largest(weights, row, begin, stop, upto, scale, before)
    if highest > before:
        rescale = np.float32(math.exp(before - highest))
        state[out, TOTAL] *= rescale
        for c in range(sums.shape[1]):
            sums[out, c] *= rescale
        state[out, MAXIMUM] = highest
    state[out, TOTAL] += exponentials(weights, row, begin, stop, upto, max(highest, LOWEST))
