"""Repeatable normal noise at memory speed: what caches and weights hold while they are timed.

Zeros, constants and never-written pages are faster to read than real data (compression, one shared zero page, lower
power), so nothing is ever timed on them.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

APART = 4099  # elements between the beginnings of two tensors in one seed's noise
BLOCK = 1 << 22  # elements drawn once and repeated: no hardware compresses a period of 16 MB
KEPT = 16  # blocks, 30 ms each to draw: one for each of nine replicas, which take turns, and one for queries


def noise_(tensor: Tensor, seed: int, start: int = 0, std: float = 1.0) -> Tensor:
    """Fill ``tensor`` (any strides) with noise, every element written, and return it.

    ``start`` shifts the noise, so that neighbours filled with different starts differ.
    """
    block = _block(tensor.device, seed)
    step = max(1, BLOCK // 2 // max(1, math.prod(tensor.shape[1:])))
    offset = start % (BLOCK // 2)
    for first in range(0, len(tensor), step):
        chunk = tensor[first : first + step]
        chunk.copy_(block[offset : offset + chunk.numel()].view(chunk.shape))
    return tensor if std == 1.0 else tensor.mul_(std)


@lru_cache(maxsize=KEPT)
def _block(device: torch.device, seed: int) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(BLOCK, generator=generator, device=device)
