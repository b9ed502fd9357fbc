"""The whole comparison of two result sets, as data: what doors print and write."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.telling.comparing.match import ACROSS, Matched, match
from experiments.telling.comparing.shared import Shared, shared
from experiments.telling.comparing.side import Entry, Side, load_side
from experiments.telling.comparing.verdict import Compared, compare

WAYS = ("key", "point")


@dataclass(frozen=True)
class Question:
    """What is asked. ``threshold``: relative; ``match``: key or point; ``across``: groups in which sides may differ.

    Raises ValueError, naming the option, for what cannot be.
    """

    a: Path
    b: Path
    threshold: float = 0.05
    confidence: float = 0.99
    match: str = "key"
    across: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_number("threshold", self.threshold, 0, 10, "a number >= 0, e.g. 0.05 for 5 %")
        _check_number("confidence", self.confidence, 0.5, 0.9999, "a number from 0.5 to 0.9999, e.g. 0.99")
        if self.match not in WAYS:
            raise ValueError(f"match must be one of {', '.join(WAYS)}; got {self.match!r}")
        unknown = [group for group in self.across if group not in ACROSS]
        if unknown:
            raise ValueError(f"across must name some of {', '.join(ACROSS)}; got {unknown[0]!r}")


@dataclass(frozen=True)
class Result:
    """Two sides, how their points matched, the points that are ok on both, the slowest of b first, and their races."""

    question: Question
    a: Side
    b: Side
    matched: Matched
    compared: tuple[Compared, ...]
    shared: Shared

    @property
    def regressions(self) -> list[Compared]:
        """Points at which b is slower by more than the threshold, significantly."""
        return [one for one in self.compared if one.regressed(self.question.threshold)]

    @property
    def not_ok(self) -> list[tuple[Entry, Entry]]:
        """Points that both have, of which at least one side has no ok row."""
        return [pair for pair in self.matched.pairs if not _both_ok(pair)]


def answer(question: Question) -> Result:
    """Compare what the question names. Raises ValueError or FileNotFoundError if nothing can be compared."""
    a, b = load_side("a", question.a), load_side("b", question.b)
    matched = match(a, b, question.match, question.across)
    both = [pair for pair in matched.pairs if _both_ok(pair)]
    compared = [compare(*pair, question.confidence) for pair in both]
    if not compared:
        raise ValueError(_nothing(question, a, b, matched))
    slowest_first = tuple(sorted(compared, key=lambda one: -one.ratio))
    return Result(question, a, b, matched, slowest_first, shared(both, question.confidence))


def _both_ok(pair: Sequence[Entry]) -> bool:
    return all(entry.row.status == "ok" for entry in pair)


def _nothing(question: Question, a: Side, b: Side, matched: Matched) -> str:
    if matched.pairs:
        (x, y), n = matched.pairs[0], len(matched.pairs)
        first = f"{x.row.attention} {x.row.scope}: a {x.row.status}, b {y.row.status}"
        return f"a and b must share a point that is ok on both sides; none of the {n} they share is (first {first})"
    advice = "check that both measured one study"
    if question.match == "key" and not question.across and match_count(a, b):
        advice = f"match=point would match {match_count(a, b)}, whatever their threads, seed and timer"
    return (
        f"a and b must share a point; {len(a.entries)} of a and {len(b.entries)} of b have no key in common: {advice}"
    )


def match_count(a: Side, b: Side) -> int:
    """Points that would match by columns instead of keys; 0 where that is ambiguous."""
    try:
        return len(match(a, b, "point").pairs)
    except ValueError:
        return 0


def _check_number(name: str, value: object, low: float, high: float, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"{name} must be {expected}; got {value!r}")
