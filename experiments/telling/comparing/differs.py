"""What else differs between the two sides of a pair: a ratio across machines says little about code."""

from collections import Counter
from collections.abc import Sequence

from experiments.telling.comparing.side import Entry

WARNED = {
    "device": "these ratios compare machines",
    "host": "these ratios compare machines",
    "threads": "these ratios compare numbers of threads",
    "versions": "a ratio may come from a library",
    "seed": "the data differ",
    "kernel": "another kernel ran",
}


def warnings(pairs: Sequence[tuple[Entry, Entry]], across: bool) -> list[str]:
    """One line per column and pair of values that differ, with the number of points.

    ``across``: the sides are meant to differ, and so are their kernels.
    """
    return [
        f"{column} differs at {_points(n)}: a has {_said(ours)}, b has {_said(theirs)}; {meaning}"
        for column, meaning in WARNED.items()
        if not (across and column == "kernel")
        for (ours, theirs), n in _different(pairs, column).items()
    ]


def apart_in(pairs: Sequence[tuple[Entry, Entry]], columns: Sequence[str]) -> list[str]:
    """In which of some columns the sides differ: what a comparison is about, so no warning."""
    return [
        f"{column}: a {_said(ours)}, b {_said(theirs)} ({_points(n)})"
        for column in columns
        for (ours, theirs), n in _different(pairs, column).items()
    ]


def crosses_machines(a: Entry, b: Entry) -> bool:
    """Whether a pair was measured on two machines."""
    return a.machine != b.machine


def _different(pairs: Sequence[tuple[Entry, Entry]], column: str) -> Counter[tuple[object, object]]:
    values = ((getattr(a.row, column), getattr(b.row, column)) for a, b in pairs)
    return Counter((x, y) for x, y in values if x != y)


def _points(count: int) -> str:
    return f"{count} point{'s' if count != 1 else ''}"


def _said(value: object) -> str:
    return "none" if value is None else str(value)
