"""What a token leaves behind, in bytes: streams, and how they lie in memory."""

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from variants.contract.checks import check_count
from variants.contract.dtype import Dtype
from variants.contract.keep import All, Keep

ROW_ALIGNMENT = 16  # bytes: one 128-bit load


class Source(enum.Enum):
    """What an entry comes from; planning reports text, image and state bytes apart."""

    TEXT = "text"
    IMAGE = "image"
    STATE = "state"


class Sharding(enum.Enum):
    """What tensor parallelism does to a stream: split by head, or a whole copy on every rank."""

    HEADS = "heads"
    REPLICATED = "replicated"


@dataclass(frozen=True)
class Quant:
    """How a stream of codes is scaled: ``scale`` names the stream that holds one scale per ``block`` of ``axis``."""

    scale: str
    block: int
    axis: str = "width"

    def __post_init__(self) -> None:
        check_count("Quant.block", self.block)
        if self.axis not in ("width", "tokens"):
            raise ValueError(f"Quant.axis must be 'width' or 'tokens'; got {self.axis!r}")


@dataclass(frozen=True)
class Stream:
    """One named thing that a token leaves in the cache: ``heads`` rows of ``width`` elements.

    Raises ValueError if a size is not positive.
    """

    name: str
    heads: int
    width: int
    dtype: Dtype
    keep: Keep = field(default_factory=All)
    source: Source = Source.TEXT
    sharding: Sharding = Sharding.HEADS
    quant: Quant | None = None

    def __post_init__(self) -> None:
        check_count(f"stream {self.name!r}: heads", self.heads)
        check_count(f"stream {self.name!r}: width", self.width)

    @property
    def row_bytes(self) -> int:
        """Bytes of one head's row."""
        return self.dtype.bytes(self.width)

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry: all heads of one token."""
        return self.heads * self.row_bytes

    def bytes(self, tokens: int) -> int:
        """Bytes one sequence of ``tokens`` tokens keeps in this stream."""
        return self.keep.entries(tokens) * self.entry_bytes


@dataclass(frozen=True)
class Slab:
    """Streams that lie side by side, row by row: ``offsets[name]`` is a stream's byte offset inside a row."""

    name: str
    heads: int
    keep: Keep
    row_bytes: int
    offsets: dict[str, int] = field(hash=False)

    def bytes(self, slots: int) -> int:
        """Bytes that ``slots`` rows take, padding included."""
        return slots * self.heads * self.row_bytes


@dataclass(frozen=True)
class CacheLayout:
    """The streams a variant stores per token and layer, and which of them share a row.

    ``rows`` groups streams whose bytes lie side by side (MLA: latent and rope, so that K is one whole row and V its
    first columns); a stream that is in no group gets a slab of its own.
    Raises ValueError for doubled names, unknown names, integers without scales, or a group whose streams differ in
    heads or keep.
    """

    streams: tuple[Stream, ...]
    rows: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        names = [s.name for s in self.streams]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"a layout needs streams with distinct names; got {names}")
        grouped = [name for group in self.rows for name in group]
        scales = [s.quant.scale for s in self.streams if s.quant]
        unknown = sorted({*grouped, *scales} - set(names))
        if unknown or len(set(grouped)) != len(grouped):
            raise ValueError(
                f"rows and scales must name each stream at most once, from {names}; got {grouped + scales}"
            )
        for stream in self.streams:
            if not stream.dtype.is_float and stream.quant is None:
                raise ValueError(f"stream {stream.name!r} of {stream.dtype.value} codes needs quant= (its scales)")
        for group in self.rows:
            kinds = {(self.stream(n).heads, self.stream(n).keep) for n in group}
            if len(kinds) != 1:
                raise ValueError(
                    f"streams {group} share a row and must have equal heads and keep; got {sorted(map(str, kinds))}"
                )

    @property
    def entries(self) -> tuple[Stream, ...]:
        """The streams that an attention makes entries for: all but scales, which follow from what they scale."""
        scales = {s.quant.scale for s in self.streams if s.quant}
        return tuple(s for s in self.streams if s.name not in scales)

    def stream(self, name: str) -> Stream:
        """The stream called ``name``; KeyError if there is none."""
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise KeyError(f"no stream {name!r}; this layout has {[s.name for s in self.streams]}")

    @property
    def bytes_per_token(self) -> Fraction:
        """Bytes of one more token while no window is full; whole for all layouts but ``Every``."""
        return sum((s.keep.rate * s.entry_bytes for s in self.streams), Fraction(0))

    def bytes(self, tokens: int) -> int:
        """Logical bytes of one sequence of ``tokens`` tokens: one sum over streams, no padding."""
        if tokens < 0:
            raise ValueError(f"tokens must be >= 0; got {tokens}")
        return sum(s.bytes(tokens) for s in self.streams)

    def slabs(self) -> tuple[Slab, ...]:
        """The rows as they lie in memory, each padded to 16 bytes so that every row can be loaded in full vectors."""
        return self._slabs

    @cached_property  # every view of a cache asks for them, also within a timed step
    def _slabs(self) -> tuple[Slab, ...]:
        grouped = {name for group in self.rows for name in group}
        alone = ((s.name,) for s in self.streams if s.name not in grouped)
        groups = sorted((*self.rows, *alone), key=lambda g: [s.name for s in self.streams].index(g[0]))
        return tuple(self._slab(group) for group in groups)

    def _slab(self, group: Iterable[str]) -> Slab:
        offsets: dict[str, int] = {}
        end = 0
        for name in group:
            stream = self.stream(name)
            start = _round_up(end, max(1, stream.dtype.bits // 8))  # a typed view needs an aligned start
            offsets[name] = start
            end = start + stream.row_bytes
        return Slab("+".join(offsets), stream.heads, stream.keep, _round_up(end, ROW_ALIGNMENT), offsets)


def _round_up(value: int, multiple: int) -> int:
    return math.ceil(value / multiple) * multiple
