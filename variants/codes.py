"""Numbers to codes and back: number = code x scale, one scale per block of columns.

A block's largest number becomes the largest code (symmetric, no zero point), so a block of zeros is all zero codes.
"""

import torch
from einops import rearrange, repeat
from jaxtyping import Shaped
from torch import Tensor

from variants.contract.codes import LARGEST
from variants.contract.dtype import Dtype
from variants.contract.layout import Stream


def encode(numbers: Shaped[Tensor, "*rows W"], stream: Stream) -> dict[str, Shaped[Tensor, "*rows _W"]]:
    """What to store for ``numbers``: themselves, or codes (not cast yet) and float32 scales, by stream name.

    A NaN makes its block's scale NaN.
    """
    if stream.quant is None:
        return {stream.name: numbers}
    block, largest = stream.quant.block, LARGEST[stream.dtype]
    padded = torch.nn.functional.pad(numbers.float(), (0, -stream.width % block))
    blocks = rearrange(padded, "... (n c) -> ... n c", c=block)
    scales = (blocks.abs().amax(dim=-1) / largest).clamp(min=torch.finfo(torch.float32).tiny)
    codes = (blocks / scales[..., None]).clamp(-largest, largest)
    codes = rearrange(codes, "... n c -> ... (n c)")[..., : stream.width]
    return {stream.name: codes.round() if stream.dtype is Dtype.INT8 else codes, stream.quant.scale: scales}


def decode(
    codes: Shaped[Tensor, "*rows W"], scales: Shaped[Tensor, "*rows blocks"], block: int, dtype: torch.dtype
) -> Shaped[Tensor, "*rows W"]:
    """Codes times the scales of their blocks, in ``dtype``."""
    spread = repeat(scales.to(dtype), "... n -> ... (n c)", c=block)
    return codes.to(dtype) * spread[..., : codes.shape[-1]]
