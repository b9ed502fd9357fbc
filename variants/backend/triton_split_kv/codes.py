"""Into which tiles a row is cut, and where the scales of its codes lie. Plain Python."""

from dataclasses import dataclass

from variants.backend.triton_split_kv.reading import block
from variants.contract.codes import CODES
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.layout import CacheLayout, Stream

QUERIES = (Dtype.BF16, Dtype.F32)  # in which every code is exact, and a weight times a scale cannot vanish as in fp16
SCALED = 128  # columns of a scale, where a row has several: a tile of its own for each


@dataclass(frozen=True)
class Columns:
    """A span's row: ``tiles`` of ``block`` columns, each of one scale.

    ``scale``: bytes from the first code to the first scale, which may lie before it; 0 where there are none.
    """

    block: int
    tiles: int = 1
    scale: int = 0

    @staticmethod
    def of(layout: CacheLayout, span: Span) -> "Columns":
        """Raises ValueError where ``readable`` says no."""
        stream = layout.stream(span.stream)
        if stream.quant is None:
            return Columns(block(span.width))
        if not readable(layout, span):
            raise ValueError(f"triton_split_kv cannot read the codes of {span}; refuses() says why")
        first, last = span.start // stream.quant.block, (span.stop - 1) // stream.quant.block
        offsets = next(slab.offsets for slab in layout.slabs() if span.stream in slab.offsets)
        codes = offsets[span.stream] + stream.dtype.bytes(span.start)
        scales = offsets[stream.quant.scale] + Dtype.F32.bytes(first)
        tiles = last - first + 1
        return Columns(block(span.width) if tiles == 1 else stream.quant.block, tiles, scales - codes)


def readable(layout: CacheLayout, span: Span) -> bool:
    """Whether a span's elements are numbers, or codes with their scales in the same row, one for each tile."""
    stream = layout.stream(span.stream)
    if stream.quant is None:
        return stream.dtype not in CODES
    in_row = any({stream.name, stream.quant.scale} <= slab.offsets.keys() for slab in layout.slabs())
    known = stream.dtype in CODES and stream.quant.axis == "width" and _scale(layout, stream).dtype is Dtype.F32
    one = span.start // stream.quant.block == (span.stop - 1) // stream.quant.block
    return in_row and known and (one or (stream.quant.block == SCALED and span.start % SCALED == 0))


def _scale(layout: CacheLayout, stream: Stream) -> Stream:
    assert stream.quant is not None
    return layout.stream(stream.quant.scale)
