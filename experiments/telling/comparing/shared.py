"""What all series of a race share from one result set to the other, and what one of them changed by beside that.

A machine's speed moves between two runs: another clock, another neighbour. All series of a race meet it alike, so each
is held against the others of its own race, round by round, on either side.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from experiments.ratio import Samples, relative_ratio
from experiments.telling.comparing.side import Entry
from experiments.telling.comparing.verdict import Compared

Pair = tuple[Entry, Entry]


@dataclass(frozen=True)
class Shared:
    """``races``: of each, the middle one of b/a over its series. ``beside``: each series against the others."""

    races: tuple[float, ...]
    beside: tuple[Compared, ...]


def shared(pairs: Sequence[Pair], confidence: float) -> Shared:
    """Of pairs that are ok on both sides: those that were sampled in the same rounds, with raw samples, two or more."""
    races: list[float] = []
    beside: list[Compared] = []
    for race in _races(pairs):
        samples = [(a.samples(), b.samples()) for a, b in race]
        ours, theirs = [a for a, _ in samples if a is not None], [b for _, b in samples if b is not None]
        if min(len(ours), len(theirs)) < len(race) or not all(
            len({len(it) for it in side}) == 1 for side in (ours, theirs)
        ):
            continue
        found = _against_the_others(race, ours, theirs, confidence)
        if found:
            races.append(median(_median_ratio(pair) for pair in race))
            beside += found
    return Shared(tuple(races), tuple(beside))


def _races(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs of one race on either side, scope by scope."""
    found: dict[tuple[object, ...], list[Pair]] = defaultdict(list)
    for a, b in pairs:
        if a.row.race is not None and b.row.race is not None:
            found[a.row.race, b.row.race, a.row.scope, a.row.temperature].append((a, b))
    return [race for race in found.values() if len(race) > 1]


def _against_the_others(
    race: Sequence[Pair], ours: Sequence[Samples], theirs: Sequence[Samples], confidence: float
) -> list[Compared]:
    found = []
    for which, (a, b) in enumerate(race):
        told = relative_ratio(ours, theirs, which, confidence)
        if told is None:
            return []
        found.append(Compared(a.row, b.row, *told, "samples", paired=True))
    return found


def _median_ratio(pair: Pair) -> float:
    a, b = (entry.row.latency_us_p50 for entry in pair)
    assert a is not None  # an ok row has a time
    assert b is not None
    return b / a
