"""Apply a rotary embedding: angles in float32, whatever the module's dtype."""

from collections.abc import Callable
from typing import Self

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from variants.contract.rotary import Rotary


class Rope(nn.Module):
    """Rotates the first ``rotary.width`` columns of each head by position (RoFormer, eq. 34).

    Positions and frequencies meet in float32, which holds every integer up to 2^24; bfloat16 would round position 257
    to 256. Only the finished cos and sin are cast to the input's dtype.
    """

    inv_freq: Tensor

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.rotary = rotary
        # device="cpu": a module built on the meta device has no other copy of these numbers
        frequencies = [] if rotary.style == "none" else rotary.frequencies()
        self.register_buffer("inv_freq", torch.tensor(frequencies, dtype=torch.float32, device="cpu"), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Follow the module to a device, but stay float32 when it is cast."""
        plain = self.inv_freq
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.inv_freq = plain.to(self.inv_freq.device)
        return self

    def forward(self, x: Float[Tensor, "B Q heads W"], position: Int[Tensor, "B Q"]) -> Float[Tensor, "B Q heads W"]:
        """The same heads, rotated to their positions."""
        width = 2 * self.inv_freq.numel()
        if width == 0:
            return x
        turned = self._rotate(x[..., :width], *self.cos_sin(position, x.dtype))
        return turned if width == x.shape[-1] else torch.cat([turned, x[..., width:]], dim=-1)

    def cos_sin(self, position: Int[Tensor, "B Q"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin of every column pair, [B, Q, 1, width/2], scaled by the embedding's amplitude."""
        angles = position[..., None, None].float() * self.inv_freq
        return (angles.cos() * self.rotary.amplitude).to(dtype), (angles.sin() * self.rotary.amplitude).to(dtype)

    def _rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.rotary.style == "half":
            a, b = x.chunk(2, dim=-1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
        a, b = x[..., 0::2], x[..., 1::2]
        return rearrange(torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1), "... pair two -> ... (pair two)")
