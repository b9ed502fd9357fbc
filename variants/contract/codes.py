"""Streams of codes: which cache dtypes come with scales, how many, and where they lie."""

from dataclasses import replace

from variants.contract.dtype import Dtype
from variants.contract.layout import ROW_ALIGNMENT, CacheLayout, Quant, Stream

CODES = (Dtype.FP8_E4M3, Dtype.INT8)
LARGEST = {Dtype.FP8_E4M3: 448.0, Dtype.INT8: 127.0}  # what the largest number of a block becomes
FP8_BLOCK = 128  # columns per scale: DeepSeek-V3's tile (arXiv 2412.19437, section 3.3) and FlashMLA's 656-byte token


def stored(*streams: Stream, one_row: bool = False) -> CacheLayout:
    """The layout of ``streams``, where those of codes bring their scales and share one row with them.

    int8 has one float32 scale per token and head, fp8_e4m3 one per 128 columns: number = code x scale. ``one_row``
    puts streams of numbers into that row too. Raises ValueError if what shares a row differs in heads or keep.
    """
    with_scales = [part for stream in streams for part in _with_scale(stream)]
    plain = {stream.name for stream in streams if stream.dtype not in CODES}
    sharing = [part for part in with_scales if one_row or part.name not in plain]
    # parts of whole 16 bytes first, so that each of them can be loaded in full vectors
    row = sorted(sharing, key=lambda part: part.row_bytes % ROW_ALIGNMENT != 0)
    return CacheLayout(tuple(with_scales), rows=(tuple(part.name for part in row),) if row else ())


def uncoded(dtype: Dtype) -> Dtype:
    """What is never coded holds in a cache of ``dtype``: rotary keys stay bfloat16 beside codes."""
    return Dtype.BF16 if dtype in CODES else dtype


def _with_scale(stream: Stream) -> tuple[Stream, ...]:
    if stream.dtype not in CODES:
        return (stream,)
    block = stream.width if stream.dtype is Dtype.INT8 else min(stream.width, FP8_BLOCK)
    scale = replace(stream, name=f"{stream.name}_scale", width=-(-stream.width // block), dtype=Dtype.F32)
    return replace(stream, quant=Quant(scale.name, block)), scale
