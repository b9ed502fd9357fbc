"""One colour, marker and dash per variant, the same in every figure of a report."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal

# Contrast on white is 3:1 or more for each (WCAG 1.4.11); the first four are told apart with any colour blindness.
COLOURS = ("#0173b2", "#029e73", "#d55e00", "#cc78bc", "#7a4f1d", "#4b3f8f", "#6e6e6e", "#9a7d00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
DASHES = ("", "5 2", "1.5 1.5", "6 2 1.5 2")  # points on and off; "" is solid

MORE_MARKERS, MORE_DASHES = ("<", ">"), ("9 3", "6 1.5 1.5 1.5 1.5 1.5")  # of the family alone

INK = "#222222"
MUTED = "#5f5f5f"
GRID = "#dddddd"


@dataclass(frozen=True)
class Style:
    """How a variant looks: ``colour`` as #rrggbb, a matplotlib ``marker``, and ``dash`` as points on and off."""

    colour: str
    marker: str
    dash: str

    @property
    def linestyle(self) -> Literal["-"] | tuple[int, tuple[float, ...]]:
        """The dash as matplotlib takes it."""
        return (0, tuple(float(n) for n in self.dash.split())) if self.dash else "-"


KNOWN = {
    name: Style(colour, marker, dash)
    for name, colour, marker, dash in zip(
        ("mha", "gqa", "mqa", "mla", "gta", "gla"),
        COLOURS,
        (*MARKERS[:4], *MORE_MARKERS),
        (*DASHES, *MORE_DASHES),
        strict=False,
    )
}
_ALL = tuple(Style(c, m, d) for d, m, c in product(DASHES, MARKERS, COLOURS))


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """A distinct style for each variant's label.

    ``mha gqa mqa mla gta gla`` always look the same; a form of one of them (``mla (absorbed)``) keeps its colour; any
    other name starts from a slot that only its name decides, so that it looks the same in the next report too.
    Raises ValueError if there are more labels than styles.
    """
    given = sorted(set(labels))
    if len(given) > len(_ALL):
        raise ValueError(f"at most {len(_ALL)} variants can be told apart in a figure; got {len(given)}")
    chosen = {label: KNOWN[label] for label in given if label in KNOWN}
    taken = set(KNOWN.values())
    for label in given:
        if label not in chosen:
            chosen[label] = next(s for s in _preferred(label, taken) if s not in taken)
            taken.add(chosen[label])
    return chosen


def apart(labels: Iterable[str]) -> dict[str, Style]:
    """Styles for one set of figures: the family as ever, any other name in what colour the others use least.

    Raises ValueError if there are more labels than styles.
    """
    given = list(dict.fromkeys(labels))
    chosen = styles(label for label in given if _family(label))
    for label in (label for label in given if label not in chosen):
        taken = [*KNOWN.values(), *chosen.values()]
        colours, markers = Counter(s.colour for s in taken), Counter(s.marker for s in taken)
        left = [s for s in _ALL if s not in taken]
        if not left:
            raise ValueError(f"at most {len(_ALL)} variants can be told apart in a figure; got {len(given)}")
        chosen[label] = min(left, key=lambda s: (colours[s.colour], markers[s.marker]))
    return chosen


def _family(label: str) -> Style | None:
    return KNOWN.get(label.split(" (")[0])


def _preferred(label: str, taken: set[Style]) -> list[Style]:
    """All styles, best first: the family's colour, then a colour and marker that no other label has."""
    start = int(hashlib.sha256(label.encode()).hexdigest(), 16) % len(_ALL)
    turned = [*_ALL[start:], *_ALL[:start]]
    family = _family(label)
    seen = {(s.colour, s.marker) for s in taken}
    return sorted(
        turned, key=lambda s: (family is not None and s.colour != family.colour, (s.colour, s.marker) in seen)
    )
