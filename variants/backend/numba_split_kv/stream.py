"""The kernel: every (sequence, kv head, split) streams its run of tokens once, for all query rows of the head.

Tokens are taken a block at a time: widened to float32 rows that stay in the first- or second-level cache, scored,
turned into weights by the online softmax of FlashAttention (Dao et al. 2022, algorithm 1), and summed. Rows go four at
a time against four tokens, so that what is loaded serves sixteen multiply-adds: with one row per head memory is the
limit, with many (MQA, MLA) it is arithmetic, and one kernel has to serve both.
"""

import numpy as np
from numba import njit, prange

from variants.backend.numba_split_kv.arithmetic import FAST, exp_, widen
from variants.backend.numba_split_kv.operands import HEAD, PAGE, SLOT, WIDTH, Array

BLOCK = 32  # tokens
TILE = 4  # query rows, and tokens, that share their loads


@njit(parallel=True, fastmath=FAST, cache=True)
def stream(
    q: Array, key: Array, tail: Array, value: Array, places: Array, table: Array, lengths: Array, start: Array,
    slots: int, window: int, queries: int, chunk: int, sums: Array, state: Array,
) -> None:  # fmt: skip
    """Sums [B, G, M, splits, V] and state [.., splits, (maximum, total)] from scaled queries [B, G, M, K]."""
    batch, groups, rows, d_qk = q.shape
    splits, d_v = sums.shape[3], sums.shape[4]
    for task in prange(batch * groups * splits):
        b, g, split = task // (groups * splits), task // splits % groups, task % splits
        keys, values = np.empty((BLOCK, d_qk), np.float32), np.empty((BLOCK, d_v), np.float32)
        weights, total = np.empty((rows, BLOCK), np.float32), np.zeros((rows, d_v), np.float32)
        top, mass = np.full(rows, -np.inf, np.float32), np.zeros(rows, np.float32)
        oldest = max(start[b], lengths[b] - queries + 1 - window) if window > 0 else start[b]
        low = oldest + split * chunk
        high = min(low + chunk, lengths[b])
        for first in range(low, high, BLOCK):
            tokens = min(BLOCK, high - first)
            for t in range(tokens):
                position = first + t
                page, slot = table[b, min(position // slots, table.shape[1] - 1)], position % slots
                fetch(key, places[0], page, g, slot, keys[t])
                fetch(tail, places[1], page, g, slot, keys[t, places[0, WIDTH] :])
                fetch(value, places[2], page, g, slot, values[t])
            score(q[b, g], keys, tokens, weights)
            last = lengths[b] - queries - first  # the first query's own token, counted from the block's
            for row in range(rows):
                stop = min(last + row % queries + 1, tokens)
                begin = max(last + row % queries + 1 - window, 0) if window > 0 else 0
                soften(weights[row], begin, stop, tokens, row, top, mass, total)
            accumulate(weights, values, tokens, total)
        for row in range(rows):
            state[b, g, row, split, 0], state[b, g, row, split, 1] = top[row], mass[row]
            for c in range(d_v):
                sums[b, g, row, split, c] = total[row, c]


@njit(fastmath=FAST, inline="always")
def fetch(memory: Array, place: Array, page: int, head: int, slot: int, row: Array) -> None:
    """Widen one row of one kv head to float32."""
    first = np.int64(page) * place[PAGE] + head * place[HEAD] + slot * place[SLOT]
    cached = memory[first : first + place[WIDTH]]  # a slice: an index that may be negative would not vectorise
    for c in range(cached.shape[0]):
        row[c] = widen(cached[c])


@njit(fastmath=FAST, inline="always")
def score(q: Array, keys: Array, tokens: int, scores: Array) -> None:
    """scores [M, tokens] = q [M, K] . keys [tokens, K], in 4 x 4 tiles; what is left over one by one."""
    rows, width = q.shape
    for row in range(0, rows - TILE + 1, TILE):
        q0, q1, q2, q3 = q[row], q[row + 1], q[row + 2], q[row + 3]
        for t in range(0, tokens - TILE + 1, TILE):
            k0, k1, k2, k3 = keys[t], keys[t + 1], keys[t + 2], keys[t + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = np.float32(0.0)
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = np.float32(0.0)
            for c in range(width):
                s00, s01, s02, s03 = s00 + q0[c] * k0[c], s01 + q0[c] * k1[c], s02 + q0[c] * k2[c], s03 + q0[c] * k3[c]
                s10, s11, s12, s13 = s10 + q1[c] * k0[c], s11 + q1[c] * k1[c], s12 + q1[c] * k2[c], s13 + q1[c] * k3[c]
                s20, s21, s22, s23 = s20 + q2[c] * k0[c], s21 + q2[c] * k1[c], s22 + q2[c] * k2[c], s23 + q2[c] * k3[c]
                s30, s31, s32, s33 = s30 + q3[c] * k0[c], s31 + q3[c] * k1[c], s32 + q3[c] * k2[c], s33 + q3[c] * k3[c]
            scores[row, t], scores[row, t + 1], scores[row, t + 2], scores[row, t + 3] = s00, s01, s02, s03
            scores[row + 1, t], scores[row + 1, t + 1], scores[row + 1, t + 2], scores[row + 1, t + 3] = (
                s10,
                s11,
                s12,
                s13,
            )
            scores[row + 2, t], scores[row + 2, t + 1], scores[row + 2, t + 2], scores[row + 2, t + 3] = (
                s20,
                s21,
                s22,
                s23,
            )
            scores[row + 3, t], scores[row + 3, t + 1], scores[row + 3, t + 2], scores[row + 3, t + 3] = (
                s30,
                s31,
                s32,
                s33,
            )
        for t in range(tokens - tokens % TILE, tokens):
            for left in range(row, row + TILE):
                scores[left, t] = dot(q[left], keys[t])
    for row in range(rows - rows % TILE, rows):
        for t in range(tokens):
            scores[row, t] = dot(q[row], keys[t])


@njit(fastmath=FAST, inline="always")
def dot(a: Array, b: Array) -> np.float32:
    """Inner product in float32."""
    total = np.float32(0.0)
    for c in range(a.shape[0]):
        total += a[c] * b[c]
    return total


@njit(fastmath=FAST, inline="always")
def soften(weights: Array, begin: int, stop: int, tokens: int, row: int, top: Array, mass: Array, total: Array) -> None:
    """Scores of one row to weights against its running maximum; earlier sums are rescaled, unseen tokens get 0."""
    highest = top[row]
    for t in range(begin, stop):
        highest = max(highest, weights[t])
    for t in range(min(begin, tokens)):
        weights[t] = 0.0
    for t in range(max(stop, 0), tokens):
        weights[t] = 0.0
    if stop <= begin:
        return
    added = np.float32(0.0)
    for t in range(begin, stop):
        weights[t] = exp_(weights[t] - highest)
        added += weights[t]
    if highest > top[row]:
        rescale = exp_(top[row] - highest) if top[row] > -np.inf else np.float32(0.0)
        mass[row] *= rescale
        for c in range(total.shape[1]):
            total[row, c] *= rescale
        top[row] = highest
    mass[row] += added


@njit(fastmath=FAST, inline="always")
def accumulate(weights: Array, values: Array, tokens: int, total: Array) -> None:
    """total [M, V] += weights [M, tokens] . values [tokens, V], in 4 x 4 tiles; what is left over one by one."""
    rows, width = total.shape
    for row in range(0, rows - TILE + 1, TILE):
        o0, o1, o2, o3 = total[row], total[row + 1], total[row + 2], total[row + 3]
        for t in range(0, tokens - TILE + 1, TILE):
            v0, v1, v2, v3 = values[t], values[t + 1], values[t + 2], values[t + 3]
            w00, w01, w02, w03 = weights[row, t], weights[row, t + 1], weights[row, t + 2], weights[row, t + 3]
            w10, w11, w12, w13 = (
                weights[row + 1, t],
                weights[row + 1, t + 1],
                weights[row + 1, t + 2],
                weights[row + 1, t + 3],
            )
            w20, w21, w22, w23 = (
                weights[row + 2, t],
                weights[row + 2, t + 1],
                weights[row + 2, t + 2],
                weights[row + 2, t + 3],
            )
            w30, w31, w32, w33 = (
                weights[row + 3, t],
                weights[row + 3, t + 1],
                weights[row + 3, t + 2],
                weights[row + 3, t + 3],
            )
            for c in range(width):
                o0[c] += w00 * v0[c] + w01 * v1[c] + w02 * v2[c] + w03 * v3[c]
                o1[c] += w10 * v0[c] + w11 * v1[c] + w12 * v2[c] + w13 * v3[c]
                o2[c] += w20 * v0[c] + w21 * v1[c] + w22 * v2[c] + w23 * v3[c]
                o3[c] += w30 * v0[c] + w31 * v1[c] + w32 * v2[c] + w33 * v3[c]
        for t in range(tokens - tokens % TILE, tokens):
            for left in range(row, row + TILE):
                add(total[left], weights[left, t], values[t])
    for row in range(rows - rows % TILE, rows):
        for t in range(0, tokens - TILE + 1, TILE):
            o0, v0, v1, v2, v3 = total[row], values[t], values[t + 1], values[t + 2], values[t + 3]
            w00, w01, w02, w03 = weights[row, t], weights[row, t + 1], weights[row, t + 2], weights[row, t + 3]
            for c in range(width):
                o0[c] += w00 * v0[c] + w01 * v1[c] + w02 * v2[c] + w03 * v3[c]
        for t in range(tokens - tokens % TILE, tokens):
            add(total[row], weights[row, t], values[t])


@njit(fastmath=FAST, inline="always")
def add(total: Array, weight: np.float32, value: Array) -> None:
    """total += weight * value."""
    for c in range(total.shape[0]):
        total[c] += weight * value[c]
