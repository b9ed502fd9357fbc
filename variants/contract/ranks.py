"""How a layer is divided over ranks: its weights by head (tensor parallelism), its cache by position (context)."""

from dataclasses import dataclass
from typing import Any

from variants.contract.checks import check_count

BLOCK = 16  # tokens in a run: also the usual page of a cache


@dataclass(frozen=True)
class Cut:
    """A weight whose ``axis`` holds ``heads`` heads side by side, then ``rest`` entries that every rank keeps whole."""

    heads: int
    axis: int = 0
    rest: int = 0

    def head(self, tp: int, rank: int) -> tuple[int, int]:
        """[first, stop) of the heads of one rank of ``tp``; beyond ``heads`` ranks, neighbours hold the same head."""
        first = rank * self.heads // tp
        return first, first + max(1, self.heads // tp)


@dataclass(frozen=True)
class Turns:
    """Which rank caches a position: runs of ``block`` tokens go to the ``ranks`` ranks in turn.

    So ranks grow evenly while tokens are appended, and never differ by more than a block. Serving engines do the same
    (vLLM's and SGLang's decode context parallelism take turns by token or block; Helix, arXiv 2507.07120, by 16 steps).
    """

    ranks: int
    block: int = BLOCK

    def __post_init__(self) -> None:
        check_count("ranks", self.ranks)
        check_count("block", self.block)

    def owner(self, position: Any) -> Any:
        """The one rank that caches a position (an int, or an array of them)."""
        return position // self.block % self.ranks

    def place(self, position: Any) -> Any:
        """Where in its owner's cache, counted from that rank's first token."""
        return position // (self.block * self.ranks) * self.block + position % self.block

    def held(self, tokens: int, rank: int) -> int:
        """How many of the first ``tokens`` tokens a rank caches."""
        rounds, rest = divmod(tokens, self.block * self.ranks)
        return rounds * self.block + min(max(rest - rank * self.block, 0), self.block)
