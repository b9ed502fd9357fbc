"""A comparison in words: a table, what could not be compared, and what it comes to."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.record import Measurement
from experiments.telling.comparing.differs import apart_in, crosses_machines, warnings
from experiments.telling.comparing.match import ACROSS
from experiments.telling.comparing.point import Naming, naming
from experiments.telling.comparing.result import Result, match_count
from experiments.telling.comparing.side import Entry, Side
from experiments.telling.comparing.verdict import Compared, overall
from experiments.telling.words import NOTHING, number, speed, times

SHOWN = 40  # rows of the table; regressions are shown however many they are
LISTED = 10  # points of a list
WORDS = {"same": "no significant difference", "unknown": "no interval"}


@dataclass(frozen=True)
class Table:
    """Cells of a table, and a mood per row: bad, good or plain."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    moods: tuple[str, ...]


@dataclass(frozen=True)
class Said:
    """What stands above the table, the table, and what stands below it."""

    above: tuple[str, ...]
    table: Table
    below: tuple[str, ...]


def say(result: Result) -> Said:
    """Put a result into words."""
    apart = [column for group in result.question.across for column in ACROSS[group]]
    every = [entry.row for pair in result.matched.pairs for entry in pair]
    every += [entry.row for entry in (*result.matched.only_a, *result.matched.only_b)]
    names = naming(every, apart)
    above = [
        *(_side(side) for side in (result.a, result.b)),
        *apart_in(result.matched.pairs, ("commit", *apart)),
        *(
            f"warning: {text}"
            for text in (*result.a.warnings, *result.b.warnings, *warnings(result.matched.pairs, bool(apart)))
        ),
        *([names.common] if names.common else []),
    ]
    table, hidden = _table(result, names)
    below = [*hidden, *_lists(result, names), *_outcome(result, names)]
    return Said(tuple(above), table, tuple(below))


def verdict(one: Compared, threshold: float) -> str:
    """``b is 1.25x slower than a: regression``; the ratio and the word never contradict each other."""
    if one.verdict in WORDS:
        return WORDS[one.verdict]
    said = f"{times(max(one.ratio, 1 / one.ratio))} {one.verdict}"
    return f"{said}: regression" if one.regressed(threshold) else said


def _side(side: Side) -> str:
    older = f", {side.superseded} older rows of the same points left out" if side.superseded else ""
    return f"{side.name}: {side.place} ({len(side.entries)} points{older})"


def _table(result: Result, names: Naming) -> tuple[Table, list[str]]:
    worst, threshold = result.regressions, result.question.threshold
    rest = [one for one in result.compared if not one.regressed(threshold)]
    rest.sort(key=lambda one: -max(one.ratio, 1 / one.ratio))
    shown = [*worst, *rest[: max(0, SHOWN - len(worst))]]
    shown.sort(key=lambda one: -one.ratio)
    header = (*names.columns, "a us", "b us", "b/a", f"{100 * result.question.confidence:g} % interval", "b is")
    rows = tuple((*names.cells(one.a), *_numbers(one), verdict(one, threshold)) for one in shown)
    moods = tuple(_mood(one, threshold) for one in shown)
    left = len(result.compared) - len(shown)
    return Table(header, rows, moods), [
        f"({left} more points, none a regression; out=FILE.csv has all)"
    ] if left else []


def _numbers(one: Compared) -> tuple[str, str, str, str]:
    a_us, b_us = number(one.a.latency_us_p50), number(one.b.latency_us_p50)
    return (
        a_us,
        b_us,
        f"{one.ratio:.3f}",
        f"[{one.interval[0]:.3f}, {one.interval[1]:.3f}]" if one.interval else NOTHING,
    )


def _mood(one: Compared, threshold: float) -> str:
    if one.regressed(threshold):
        return "bad"
    return "good" if one.beyond(threshold) else "plain"


def _lists(result: Result, names: Naming) -> list[str]:
    refused = [f"{names.words(a.row)} (a {_status(a.row)}, b {_status(b.row)})" for a, b in result.not_ok]
    found = [_listed("on both sides but not ok on one, so not compared", refused)]
    for side, entries in (("a", result.matched.only_a), ("b", result.matched.only_b)):
        found.append(_listed(f"only in {side}", [_alone(entry, names) for entry in entries]))
    also = match_count(result.a, result.b) if result.question.match == "key" and not result.question.across else 0
    if also > len(result.matched.pairs):
        found.append(f"hint: match=point would match {also} points, whatever their threads, seed and timer")
    return [text for text in found if text]


def _alone(entry: Entry, names: Naming) -> str:
    return names.words(entry.row) + ("" if entry.row.status == "ok" else f" ({_status(entry.row)})")


def _status(row: Measurement) -> str:
    return row.status if row.reason is None else f"{row.status}: {row.reason[:80]}"


def _listed(what: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    more = f"\n  and {len(items) - LISTED} more" if len(items) > LISTED else ""
    return f"{what} ({len(items)}):" + "".join(f"\n  {item}" for item in items[:LISTED]) + more


def _outcome(result: Result, names: Naming) -> list[str]:
    threshold, shared = result.question.threshold, len(result.compared)
    by_rows, in_turns = (
        sum(holds) for holds in zip(*((o.source == "rows", o.paired) for o in result.compared), strict=True)
    )
    beyond, regressed = [one for one in result.compared if one.beyond(threshold)], len(result.regressions)
    surely = sum(one.surely_beyond(threshold) for one in beyond)
    over = f"more than {100 * threshold:g} %"
    return [
        *(line for origin in ("measured", "predicted") for line in _overall(result, origin)),
        *([f"no raw samples at {by_rows} points: intervals follow from the rows' own"] if by_rows else []),
        *([f"measured in turns at {in_turns} points: round is held against round"] if in_turns else []),
        f"{len(beyond)} of {shared} points ({100 * len(beyond) / shared:.1f} %) differ significantly by {over}"
        + (f", {surely} ({100 * surely / shared:.1f} %) by their whole interval" if beyond else ""),
        *_beside(result, names, over),
        f"regression: b is slower by {over} at {regressed} of {shared} points"
        if regressed
        else f"no regression by {over}",
    ]


def _beside(result: Result, names: Naming, over: str) -> list[str]:
    """What the machine may have done to all series of a race, and what is left."""
    races, beside = result.shared.races, result.shared.beside
    if not races:
        return []
    left = sorted((one for one in beside if one.beyond(result.question.threshold)), key=lambda one: -one.ratio)
    share = f"{len(left)} of {len(beside)} points ({100 * len(left) / len(beside):.1f} %)"
    listed = _listed("those, b/a against the others of its race", [f"{names.words(o.b)} {o.ratio:.3f}" for o in left])
    return [
        f"what all series of a race share, as when the machine is slower: {min(races):.3f} to {max(races):.3f} of a's "
        f"time; beside that {share} differ significantly by {over}",
        *([listed] if listed else []),
    ]


def _overall(result: Result, origin: str) -> list[str]:
    """Measured and predicted rows share no mean."""
    compared = [one for one in result.compared if one.a.origin == origin]
    if not compared:
        return []
    total = overall(compared)
    across = any(crosses_machines(*pair) for pair in result.matched.pairs)
    machines = " (warning: some across machines)" if across else ""
    undecided = f", undecided for want of an interval at {total.unknown}" if total.unknown else ""
    return [
        f"overall: {speed('b', total.ratio, 'a', 1.0)}, geometric mean {total.ratio:.3f} over the {total.points} "
        f"{origin} points ok on both sides of {result.matched.count(origin)} in all{machines}",
        f"b is faster at {total.faster}, slower at {total.slower}, not significantly different at {total.same}"
        f"{undecided}",
    ]
