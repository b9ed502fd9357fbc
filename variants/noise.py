"""Repeatable normal noise at memory speed: what caches and weights hold while they are timed.

Zeros, constants and never-written pages are faster to read than real data (compression, one shared zero page, lower
power), so nothing is ever timed on them.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

APART = 4099  # elements between the beginnings of two tensors in one seed's noise
BLOCK = 1 << 22  # elements drawn once, 30 ms, and copied from: no hardware compresses what recurs after 4 MB or more
RUN = BLOCK // 2  # elements copied at once; each run of a tensor begins elsewhere in the block,
RUNS_APART = 1_299_709  # odd: so that rows, of any usual width, that lie half a tensor apart are not the same ones
KEPT = 12  # blocks: one per seed, dtype and deviation


def noise_(tensor: Tensor, seed: int, start: int = 0, std: float = 1.0) -> Tensor:
    """Fill ``tensor`` (any strides) with noise, every element written, and return it.

    ``start`` shifts the noise, so that neighbours filled with different starts differ.
    """
    block = _block(tensor.device, tensor.dtype, seed, std)
    for number, run in enumerate(_runs(tensor)):
        offset = (start + number * RUNS_APART) % RUN
        run.copy_(block[offset : offset + run.numel()].view(run.shape))
    return tensor


def _runs(tensor: Tensor) -> Iterator[Tensor]:
    """Views of all of it, of whole rows and at most RUN elements each."""
    each = max(1, math.prod(tensor.shape[1:]))
    if each <= RUN:
        yield from tensor.split(RUN // each)
        return
    for part in tensor:
        yield from _runs(part)


@lru_cache(maxsize=KEPT)
def _block(device: torch.device, dtype: torch.dtype, seed: int, std: float) -> Tensor:
    if (dtype, std) != (torch.float32, 1.0):
        return (_block(device, torch.float32, seed, 1.0) * std).to(dtype)
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(BLOCK, generator=generator, device=device)
