"""CacheView: slabs, block table and lengths; the only thing a storage hands a backend."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from einops import rearrange
from jaxtyping import Int, Int32, Shaped, UInt8
from torch import Tensor

from variants.codes import decode
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span, one_run
from variants.contract.layout import CacheLayout

TORCH_DTYPES = {
    Dtype.F64: torch.float64,
    Dtype.F32: torch.float32,
    Dtype.F16: torch.float16,
    Dtype.BF16: torch.bfloat16,
    Dtype.FP8_E4M3: torch.float8_e4m3fn,
    Dtype.INT8: torch.int8,
}
DTYPES = {torch_dtype: dtype for dtype, torch_dtype in TORCH_DTYPES.items()}
ALL_HEADS = slice(None)


@dataclass(frozen=True)
class CacheView:
    """Where a batch's cache lies. Shapes: see the legend in ``variants/protocols.py``.

    ``slabs[i]`` holds the bytes of ``layout.slabs()[i]``, head-major. ``block_table`` maps a sequence's n-th page to a
    page of the slab; None means that page b is the whole of sequence b. ``lengths`` are cached tokens per sequence, the
    newest included; the tensor belongs to the cache and changes in place when tokens are appended. ``start`` is the
    position of each sequence's oldest token still held where slots are reused (a ring: position p lies in slot p modulo
    the number of slots); None means that every token is held and the oldest is 0.
    """

    layout: CacheLayout
    slabs: tuple[UInt8[Tensor, "P _heads S _row"], ...]
    lengths: Int32[Tensor, "B"]
    block_table: Int32[Tensor, "B N"] | None = None
    start: Int32[Tensor, "B"] | None = None

    def stream(self, name: str) -> Shaped[Tensor, "P heads S W"]:
        """A typed, strided view of one stream; never a copy."""
        return self.span(Span(name, 0, self.layout.stream(name).width))

    def span(self, span: Span) -> Shaped[Tensor, "P heads S W"]:
        """A strided view of some columns of a stream; never a copy."""
        view = self.joined([span])
        assert view is not None  # a single span always lies in one run
        return view

    def joined(self, spans: Sequence[Span]) -> Shaped[Tensor, "P heads S W"] | None:
        """One strided view over all spans where they lie end to end in one row, else None. Never a copy."""
        run = one_run(self.layout, spans)
        if run is None:
            return None
        return self.slabs[run.slab][..., run.start : run.stop].view(TORCH_DTYPES[run.dtype])

    def sequence(self, row: int) -> "CacheView":
        """The view of one sequence alone; never a copy."""
        one = slice(row, row + 1)
        if self.block_table is None:
            slabs, start = tuple(slab[one] for slab in self.slabs), None if self.start is None else self.start[one]
            return replace(self, slabs=slabs, lengths=self.lengths[one], start=start)
        return replace(self, lengths=self.lengths[one], block_table=self.block_table[one])

    def positions(self, max_length: int) -> Int[Tensor, "B T"]:
        """Positions of the tokens that ``gather`` returns, in its order."""
        oldest = torch.zeros_like(self.lengths) if self.start is None else self.start
        return oldest[:, None] + torch.arange(min(max_length, self._held), device=oldest.device)

    def gather(self, span: Span, max_length: int, heads: slice = ALL_HEADS) -> Shaped[Tensor, "B heads T W"]:
        """The first ``max_length`` held tokens of every sequence in order; a copy unless the cache is contiguous."""
        lying = self.span(span)[:, heads]
        if self.start is not None:
            slot = (self.positions(max_length) % self._held).long()
            rows = torch.arange(len(slot), device=slot.device)[:, None]
            return rearrange(lying[rows, :, slot], "b t heads w -> b heads t w")
        if self.block_table is None:
            return lying[:, :, :max_length]
        used = self.block_table[:, : -(-max_length // lying.shape[2])]  # a copy, so of no more pages than are asked for
        paged = lying[used.clamp(min=0).long()]  # pages of empty sequences may be -1
        return rearrange(paged, "b n heads s w -> b heads (n s) w")[:, :, :max_length]

    def read(
        self, span: Span, max_length: int, dtype: torch.dtype, heads: slice = ALL_HEADS
    ) -> Shaped[Tensor, "B heads T W"]:
        """``gather`` as numbers of ``dtype``: codes are multiplied by their scales."""
        quant = self.layout.stream(span.stream).quant
        if quant is None:
            return self.gather(span, max_length, heads).to(dtype)
        whole = Span(span.stream, 0, span.stop)  # blocks are counted from the row's start
        scales = Span(quant.scale, 0, -(-span.stop // quant.block))
        codes = self.gather(whole, max_length, heads), self.gather(scales, max_length, heads)
        return decode(*codes, quant.block, dtype)[..., span.start :]

    @property
    def _held(self) -> int:
        """Tokens of one sequence that the slabs have room for."""
        pages = 1 if self.block_table is None else self.block_table.shape[1]
        return pages * self.slabs[0].shape[2]
