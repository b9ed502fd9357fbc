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
    """Of pairs that are ok on both sides: those of two races, sampled in the same rounds, with raw samples."""
    races: list[float] = []
    beside: list[Compared] = []
    for race in _races(pairs):
        ours, theirs = _samples([a for a, _ in race]), _samples([b for _, b in race])
        found = _against_the_others(race, ours, theirs, confidence) if ours and theirs else []
        if found:
            races.append(median(b.us / a.us for a, b in race))
            beside += found
    return Shared(tuple(races), tuple(beside))


def _races(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Pairs of one race on either side, scope by scope; in one and the same race nothing differs that all share."""
    found: dict[tuple[object, ...], list[Pair]] = defaultdict(list)
    for a, b in pairs:
        if a.row.race is not None and b.row.race is not None and a.row.race != b.row.race:
            found[a.row.race, b.row.race, a.row.scope, a.row.temperature].append((a, b))
    return [race for race in found.values() if len(race) > 1]


def _samples(entries: Sequence[Entry]) -> list[Samples]:
    """Of all of them; none where one has none, or other rounds than the rest."""
    kept = [samples for entry in entries if (samples := entry.samples()) is not None]
    return kept if len(kept) == len(entries) and len({len(samples) for samples in kept}) == 1 else []


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
