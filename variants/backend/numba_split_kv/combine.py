"""Merge the splits of a row by log-sum-exp."""

import math

import numpy as np
from numba import prange

from variants.backend.numba_split_kv.block import MAXIMUM, TOTAL
from variants.backend.numba_split_kv.kernel import kernel
from variants.backend.numba_split_kv.operands import Array


@kernel
def combine(sums: Array, state: Array, splits: int, rows: int, padded: int, o: Array, lse: Array) -> None:
    """o [B x G x M, V] and lse [B x G x M] from sums [B x G x splits x M', V] and state [.., (maximum, total)].

    M is ``rows``, M' the same ``padded``. A row that saw no key gives zeros and -inf.
    """
    for out in prange(o.shape[0]):
        first, top, total = out // rows * splits * padded + out % rows, np.float32(-np.inf), np.float32(0.0)
        for split in range(splits):
            top = max(top, state[first + split * padded, MAXIMUM])
        for c in range(o.shape[1]):
            o[out, c] = 0.0
        for split in range(splits):
            part = first + split * padded
            if state[part, TOTAL] != 0.0:  # NaN has to show
                weight = np.float32(math.exp(state[part, MAXIMUM] - top))
                total += weight * state[part, TOTAL]
                for c in range(o.shape[1]):
                    o[out, c] += weight * sums[part, c]
        share = np.float32(1.0) / total if total != 0.0 else np.float32(0.0)
        for c in range(o.shape[1]):
            o[out, c] *= share
        lse[out] = top + np.float32(math.log(total)) if total != 0.0 else -np.inf
