"""In what a cache is stored: element dtype and scales, independent of what the weights are made of."""

import re
from dataclasses import dataclass, replace

from variants.contract.codes import FP8_BLOCK
from variants.contract.dtype import Dtype
from variants.contract.layout import CacheLayout, Quant, Source, Stream

INT4_GROUP = 32  # columns per scale where the name says nothing
GROUPS = (16, 32, 48, 64, 96, 128)  # offered where a group does not divide a width


@dataclass(frozen=True)
class Format:
    """One cache dtype. ``group``: columns per scale, 0 = one scale per token and head, None = no scale per token.

    ``rope``: what the shared rotary key of a latent cache is stored in; it is never coded.
    """

    name: str
    element: Dtype
    scale: Dtype | None = None
    group: int | None = None
    rope: Dtype | None = None
    latent_only: bool = False

    def layout(self, streams: tuple[Stream, ...]) -> CacheLayout:
        """The streams stored in this format; ValueError names a width that its groups do not divide."""
        return CacheLayout(tuple(part for stream in streams for part in self._stored(stream)))

    def _stored(self, stream: Stream) -> tuple[Stream, ...]:
        if stream.source is Source.STATE:
            return (stream,)
        if stream.name == "rope" and self.rope:
            return (replace(stream, dtype=self.rope),)
        coded = replace(stream, dtype=self.element)
        if self.scale is None or self.group is None:
            return (coded,)
        block = self.group or stream.width
        if stream.width % block:
            fitting = [str(g) for g in GROUPS if stream.width % g == 0]
            raise ValueError(
                f"kv_dtype {self.name} needs groups that divide head_dim; got head_dim={stream.width} ({stream.name}) "
                f"and groups of {block}; valid groups: {', '.join(fitting) or stream.width}"
            )
        scale = replace(stream, name=f"{stream.name}_scale", width=stream.width // block, dtype=self.scale)
        return replace(coded, quant=Quant(scale.name, block)), scale


def parse_format(name: object) -> Format:
    """The format called ``name``; ValueError lists the known ones."""
    text = str(name)
    grouped = re.fullmatch(r"int4_g([1-9][0-9]{0,3})", text)
    if grouped:
        return _int4(text, int(grouped[1]))
    if text not in FORMATS:
        raise ValueError(f"kv_dtype must be one of {', '.join(FORMATS)}, int4_g<columns per scale>; got {name!r}")
    return FORMATS[text]


def _int4(name: str, group: int) -> Format:
    return Format(name, Dtype.INT4, Dtype.F16, group, rope=Dtype.BF16)


FORMATS = {
    made.name: made
    for made in (
        Format("bf16", Dtype.BF16),
        Format("fp16", Dtype.F16),
        Format("fp32", Dtype.F32),
        # engines keep one fp8 scale per tensor beside the weights: no bytes per token
        Format("fp8", Dtype.FP8_E4M3),
        Format("fp8_e4m3", Dtype.FP8_E4M3),
        Format("fp8_ds_mla", Dtype.FP8_E4M3, Dtype.F32, FP8_BLOCK, rope=Dtype.BF16, latent_only=True),
        Format("int8", Dtype.INT8, Dtype.F32, 0, rope=Dtype.BF16),
        _int4("int4", INT4_GROUP),
        Format("bfloat16", Dtype.BF16),
        Format("float16", Dtype.F16),
        Format("float32", Dtype.F32),
    )
}
