"""What a token leaves behind, in bytes: streams, which tokens each keeps, and how they lie in memory."""

import enum
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Protocol

ROW_ALIGNMENT = 16  # bytes: one 128-bit load


class Dtype(enum.Enum):
    """Element types a cache, a weight or an activation can have. ``value`` is the short name used in configs."""

    F64 = "fp64"
    F32 = "fp32"
    F16 = "fp16"
    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return _BITS[self]

    @property
    def is_float(self) -> bool:
        """Whether an element is a number by itself (an integer code needs a scale)."""
        return self not in (Dtype.INT8, Dtype.INT4)

    def bytes(self, elements: int) -> int:
        """Whole bytes that ``elements`` take when packed: five int4 codes take three bytes."""
        return -(-elements * self.bits // 8)

    @staticmethod
    def parse(name: object) -> "Dtype":
        """The dtype called ``name`` (``bf16``, also ``bfloat16``); ValueError lists the known ones."""
        text = _ALIASES.get(str(name), str(name))
        try:
            return Dtype(text)
        except ValueError:
            known = ", ".join(d.value for d in Dtype)
            raise ValueError(f"dtype must be one of {known}; got {name!r}") from None


_BITS = {
    Dtype.F64: 64,
    Dtype.F32: 32,
    Dtype.F16: 16,
    Dtype.BF16: 16,
    Dtype.FP8_E4M3: 8,
    Dtype.INT8: 8,
    Dtype.INT4: 4,
}
_ALIASES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
}


class Keep(Protocol):
    """Which tokens a stream keeps: how many entries are stored once ``tokens`` have been seen."""

    def entries(self, tokens: int) -> int:
        """Entries stored after ``tokens`` tokens."""
        ...

    @property
    def rate(self) -> Fraction:
        """Entries that one more token adds while nothing is dropped."""
        ...


@dataclass(frozen=True)
class All:
    """Every token keeps an entry."""

    rate: Fraction = field(default=Fraction(1), init=False)

    def entries(self, tokens: int) -> int:
        """``tokens``."""
        return tokens

    def __str__(self) -> str:
        return "every token"


@dataclass(frozen=True)
class Window:
    """The last ``size`` tokens keep an entry; the current token counts (a chunk is charged as a window)."""

    size: int
    rate: Fraction = field(default=Fraction(1), init=False)

    def __post_init__(self) -> None:
        check_count("Window.size", self.size)

    def entries(self, tokens: int) -> int:
        """min(tokens, size)."""
        return min(tokens, self.size)

    def __str__(self) -> str:
        return f"the last {self.size} tokens"


@dataclass(frozen=True)
class Every:
    """One entry for every ``stride`` whole tokens, as compressed-entry models store them."""

    stride: int

    def __post_init__(self) -> None:
        check_count("Every.stride", self.stride)

    @property
    def rate(self) -> Fraction:
        """1 / stride."""
        return Fraction(1, self.stride)

    def entries(self, tokens: int) -> int:
        """floor(tokens / stride)."""
        return tokens // self.stride


@dataclass(frozen=True)
class Fixed:
    """``count`` entries whatever the length: recurrent state, convolution columns, image keys."""

    count: int
    rate: Fraction = field(default=Fraction(0), init=False)

    def __post_init__(self) -> None:
        check_count("Fixed.count", self.count)

    def entries(self, tokens: int) -> int:
        """``count``, from the first token on."""
        return self.count if tokens else 0


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


def check_count(name: str, value: object) -> None:
    """Raise ValueError naming ``name`` unless ``value`` is a whole number >= 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}")


def check_number(name: str, value: object) -> None:
    """Raise ValueError naming ``name`` unless ``value`` is a finite number > 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0; got {value!r}")
