"""Figures of cache sizes before anything runs: per sequence over context, per device over tp, sequences that fit.

What is drawn comes as plain names and points from whoever counted it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from matplotlib.axes import Axes

from experiments.telling.figures.axes import byte_axis, context_axis, device_axis, value_axis
from experiments.telling.figures.canvas import Drawn, blank, footnote, look, save
from experiments.telling.figures.curve import NAN, Curve, draw_curves, mark_failures
from experiments.telling.figures.endings import name_curves
from experiments.telling.figures.style import INK, KNOWN, Style, apart
from experiments.telling.words import binary_size, number

LONGEST_NAME = 40  # letters
Points = Mapping[str, Sequence[tuple[int, float | None]]]


@dataclass(frozen=True)
class Sheet:
    """One figure: ``stem`` of its files, a heading, the ``title`` that lets it stand alone, and what to draw.

    A value of None was asked for and cannot be; ``gaps`` says why, ``notes`` what else a reader must know. ``looks``:
    styles that the curves already have elsewhere. ``versus``: curves are variants of one model, and it is marked where
    one falls below another.
    """

    stem: str
    heading: str
    title: str
    panel: str
    label: str
    points: Points
    gaps: str
    notes: tuple[str, ...] = ()
    predicted: bool = False
    looks: Mapping[str, Style] | None = None
    versus: bool = False


def draw_cache(sheet: Sheet, folder: Path) -> Drawn:
    """Bytes over context, both axes log2: what grows with every token is a slope, a window that fills bends it."""
    return _draw(sheet, folder, context_axis, byte_axis, binary_size)


def draw_devices(sheet: Sheet, folder: Path) -> Drawn:
    """Bytes per device over tp, both axes log2: what is split falls, what every rank holds is flat."""
    return _draw(sheet, folder, device_axis, byte_axis, binary_size, falls_below(sheet.points) if sheet.versus else ())


@dataclass(frozen=True)
class Fall:
    """From ``tp`` on a cache that is split takes fewer ``bytes`` of a device than one that every rank holds whole."""

    name: str
    whole: str
    tp: int
    bytes: float

    @property
    def said(self) -> str:
        """``gqa takes less of a device than mla from tp 4``."""
        return f"{self.name} takes less of a device than {self.whole} from tp {self.tp}"


def falls_below(points: Points) -> list[Fall]:
    """Every pair of curves of which one is flat and the other starts above it and comes to lie below."""
    flat = {name: line[0][1] for name, line in points.items() if len(line) > 1 and len({y for _, y in line if y}) == 1}
    return [
        Fall(name, whole, *next((tp, y) for tp, y in line if y and y < level))
        for whole, level in flat.items()
        for name, line in points.items()
        if level and (line[0][1] or 0) > level and any(y and y < level for _, y in line)
    ]


def draw_capacity(sheet: Sheet, folder: Path) -> Drawn:
    """Sequences that fit over context."""
    return _draw(sheet, folder, context_axis, value_axis, lambda count: number(count, 1 + len(str(int(count)))))


def _draw(
    sheet: Sheet,
    folder: Path,
    along: Callable[[Axes, Sequence[int]], None],
    up: Callable[[Axes, Sequence[float], str, bool], None],
    said: Callable[[float], str],
    falls: Sequence[Fall] = (),
) -> Drawn:
    with look():
        figure, (ax,) = blank(sheet.heading, sheet, [sheet.panel])
        found = _curves(sheet.points, sheet.looks)
        draw_curves(ax, found)
        failed = mark_failures(ax, found)
        along(ax, sorted({x for curve in found for x in curve.x}))
        up(ax, [v for curve in found for v in curve.values], sheet.label, failed)
        notes = (*([f"x on the axis: {sheet.gaps}."] if failed else []), *sheet.notes)
        notes = (*_ring(ax, falls), *notes)
        footnote(figure, notes)
        name_curves(figure, [ax], [found])
        folder.mkdir(parents=True, exist_ok=True)
        save(figure, folder, sheet.stem)
    ends = ", ".join(f"{c.name} {said(c.last[1])} at {c.last[0]}" for c in found if c.last) or "none"
    return Drawn(sheet.stem, sheet.heading, f"{sheet.heading}, log-log, {sheet.title}. Last points: {ends}.", notes)


def _ring(ax: Axes, falls: Sequence[Fall]) -> list[str]:
    """A ring around each first point below; the sentences that say what it is below of."""
    for tp, size in sorted({(fall.tp, fall.bytes) for fall in falls}):
        ax.plot(tp, size, "o", ms=13, fillstyle="none", color=INK, markeredgewidth=1.2)
    return [f"Ring: {'; '.join(fall.said for fall in falls)}."] if falls else []


def _curves(points: Points, looks: Mapping[str, Style] | None) -> list[Curve]:
    """One curve per different line, the highest at its end first; names of lines that coincide are joined."""
    look_of = {_label(name): looks[name] for name in points} if looks else apart(map(_label, points))
    lines = sorted(points.items(), key=lambda item: [-(y or 0) for _, y in reversed(item[1])])
    merged = ([name for name, _ in same] for _, same in groupby(lines, lambda item: list(item[1])))
    return [_curve(_joined(names), points[names[0]], look_of[_label(_speaker(names))]) for names in merged]


def _joined(names: Sequence[str]) -> str:
    """``model = GQA-8``; a name so long that it would leave no room to the curve says how many there are."""
    every = " = ".join(names)
    return every if len(every) <= LONGEST_NAME or len(names) == 1 else f"{names[0]} and {len(names) - 1} equal"


def _speaker(names: Sequence[str]) -> str:
    """Whose look a joined curve has: the first of the family, which a reader knows."""
    return next((name for name in names if _label(name) != name), names[0])


def _label(name: str) -> str:
    """A variant's name as the styles know it, so that MLA looks here as it does in a report."""
    family = re.split("[- ]", name.lower(), maxsplit=1)[0]
    if family not in KNOWN:
        return name
    return family if family == name.lower() else f"{family} ({name})"


def _curve(name: str, line: Sequence[tuple[int, float | None]], style: Style) -> Curve:
    x = tuple(x for x, _ in line)
    nothing = tuple(NAN for _ in x)
    y = tuple(float(value) if value else NAN for _, value in line)
    return Curve(name, style, False, x, y, nothing, nothing, (), tuple(x for x, value in line if not value))
