"""Merge the splits of a row by log-sum-exp."""

import math

import numpy as np
from numba import njit, prange

from variants.backend.numba_split_kv.arithmetic import FAST
from variants.backend.numba_split_kv.operands import Array


@njit(parallel=True, fastmath=FAST, cache=True)
def combine(sums: Array, state: Array, o: Array, lse: Array) -> None:
    """o [B, G, M, V] and lse [B, G, M] from sums [.., splits, V] and state [.., splits, (maximum, total)].

    A row that saw no key gives zeros and -inf.
    """
    batch, groups, rows, splits, d_v = sums.shape
    for task in prange(batch * groups * rows):
        b, g, row = task // (groups * rows), task // rows % groups, task % rows
        top = np.float32(-np.inf)
        for split in range(splits):
            top = max(top, state[b, g, row, split, 0])
        total = np.float32(0.0)
        o[b, g, row, :] = 0.0
        for split in range(splits):
            if state[b, g, row, split, 1] == 0.0:
                continue
            weight = np.float32(math.exp(state[b, g, row, split, 0] - top))
            total += weight * state[b, g, row, split, 1]
            for c in range(d_v):
                o[b, g, row, c] += weight * sums[b, g, row, split, c]
        if total > 0.0:
            for c in range(d_v):
                o[b, g, row, c] /= total
            lse[b, g, row] = top + np.float32(math.log(total))
        else:
            lse[b, g, row] = -np.inf
