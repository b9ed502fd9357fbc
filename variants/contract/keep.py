"""Which tokens a stream keeps an entry for."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from variants.contract.checks import check_count


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
