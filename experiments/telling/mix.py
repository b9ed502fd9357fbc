"""A distribution of sizes, each with its share of the decoded tokens: ``{8k: 0.7, 128k: 0.3}``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from experiments.telling.words import percent
from variants.contract.tokens import format_tokens, parse_tokens

SLACK = 1e-6  # shares are written in decimals


@dataclass(frozen=True)
class Mix:
    """``shares`` of sizes (tokens, or sequences), by rising size; they add up to 1."""

    shares: tuple[tuple[int, float], ...]

    @classmethod
    def of(cls, size: int) -> Self:
        """One size alone."""
        return cls(((size, 1.0),))

    @classmethod
    def parse(cls, value: object, name: str) -> Self | None:
        """A size, a mapping of sizes to shares, or null; ValueError naming ``name``."""
        if value is None:
            return None
        if not isinstance(value, Mapping):
            return cls.of(parse_tokens(value, name))
        shares = {parse_tokens(size, name): share for size, share in value.items()}
        wrong = [s for s in shares.values() if isinstance(s, bool) or not isinstance(s, int | float) or not s > 0]
        if wrong or len(shares) < len(value) or abs(sum(shares.values()) - 1) > SLACK:
            raise ValueError(
                f"{name} must give sizes, each once, shares > 0 that add up to 1, e.g. {{8k: 0.7, 128k: 0.3}}; "
                f"got {dict(value)}"
            )
        return cls(tuple(sorted((size, float(share)) for size, share in shares.items())))

    @property
    def sizes(self) -> list[int]:
        """Without their shares."""
        return [size for size, _ in self.shares]

    def __str__(self) -> str:
        if len(self.shares) == 1:
            return format_tokens(self.sizes[0])
        return ", ".join(f"{format_tokens(size)} ({percent(share)})" for size, share in self.shares)
