"""Curves: the points of one variant over context, and what could not be drawn and why."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.transforms import blended_transform_factory

from experiments.record import TIMED
from experiments.telling.figures.style import Style
from experiments.telling.frame import family_order, records
from experiments.telling.words import tokens

NAN = float("nan")
COLUMNS = [
    "label",
    "temperature",
    "repeat",
    "status",
    "scope",
    "context",
    "key",
    "latency_us_ci_low",
    "latency_us_ci_high",
]
DENSE = 40  # points of one line
LOWEST_MARK, MARK_STEP = 0.022, 0.045  # where failure marks sit, as fractions of the axis height


@dataclass(frozen=True)
class Curve:
    """One line: ``y`` (and its interval) at each ``x``, NaN where there is no ok value, so that the line breaks there.

    ``hollow`` are quarantined points; ``failed`` contexts that were tried and gave no value.
    """

    name: str
    style: Style
    thin: bool
    x: tuple[int, ...]
    y: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    hollow: tuple[tuple[int, float], ...]
    failed: tuple[int, ...]

    @property
    def values(self) -> list[float]:
        """Every value that must lie inside the axes."""
        points = [*self.y, *self.low, *self.high, *(y for _, y in self.hollow)]
        return [v for v in points if not math.isnan(v)]

    @property
    def last(self) -> tuple[int, float] | None:
        """The rightmost visible point."""
        points = [(x, y) for x, y in zip(self.x, self.y, strict=True) if not math.isnan(y)]
        return max([*points, *self.hollow], default=None)


def curves(
    rows: pd.DataFrame, column: str, contexts: Sequence[int], styles: dict[str, Style]
) -> tuple[list[Curve], list[str]]:
    """One curve per line of the table, and remarks naming every point a log axis cannot show.

    A curve breaks at each of ``contexts`` it has no ok value for: a line through a gap would claim a value.
    """
    remarks: list[str] = []
    mixed = rows.loc[rows["status"].isin(TIMED), "temperature"].dropna().nunique() > 1
    found: list[Curve] = []
    groups: dict[tuple[str, str | None, int], list[dict[str, Any]]] = {}
    for row in records(rows[[*COLUMNS, column]]):
        warm = row["temperature"] if mixed and row["temperature"] != "cold" else None
        groups.setdefault((row["label"], warm, row["repeat"]), []).append(row)
    for (label, warm, repeat), points in sorted(groups.items(), key=lambda g: (family_order(g[0][0]), str(g[0][1:]))):
        name = label + (f", {warm}" if warm else "") + (f" #{repeat + 1}" if repeat else "")
        found.append(_curve(name, styles[label], warm == "warm", points, column, contexts))
        remarks += _left_out(name, points, column)
    return found, remarks


def draw_curves(ax: Axes, found: Iterable[Curve]) -> None:
    """Lines with markers, interval bands and whiskers, hollow quarantined points."""
    for c in found:
        dense = len(c.x) > DENSE  # white edges part crossing markers, but would wipe out a crowd of them
        marks: Any = {"ms": 3} if dense else {"ms": 6, "markeredgecolor": "white", "markeredgewidth": 0.5}
        line: Any = {"linestyle": c.style.linestyle, "linewidth": 0.9 if c.thin else 1.8}
        if not all(map(math.isnan, c.high)):
            ax.fill_between(c.x, c.low, c.high, color=c.style.colour, alpha=0.18, linewidth=0)
            ax.vlines(c.x, c.low, c.high, color=c.style.colour, linewidth=1.0)
        ax.plot(c.x, c.y, c.style.marker, color=c.style.colour, **line, **marks)
        if c.hollow:
            x, y = zip(*c.hollow, strict=True)
            ax.plot(x, y, c.style.marker, color=c.style.colour, fillstyle="none", markeredgewidth=1.4, linestyle="")


def mark_failures(ax: Axes, found: Iterable[Curve]) -> bool:
    """An x in the variant's colour on the context axis, stacked where several failed; whether there was any."""
    stacked: dict[int, int] = {}
    foot = blended_transform_factory(ax.transData, ax.transAxes)
    for c in found:
        for x in c.failed:
            height = LOWEST_MARK + MARK_STEP * stacked.get(x, 0)
            stacked[x] = stacked.get(x, 0) + 1
            ax.plot(x, height, "x", color=c.style.colour, transform=foot, clip_on=False, ms=7, markeredgewidth=1.8)
    return bool(stacked)


def _curve(
    name: str, style: Style, thin: bool, points: list[dict[str, Any]], column: str, contexts: Sequence[int]
) -> Curve:
    ok = {p["context"]: p for p in points if p["status"] == "ok" and _drawable(p, column)}
    doubtful = [p for p in points if p["status"] == "quarantined" and _drawable(p, column)]
    grid = sorted({*contexts, *ok})
    latency = column == "latency_us_p50"
    return Curve(
        name,
        style,
        thin,
        x=tuple(grid),
        y=tuple(ok[x][column] if x in ok else NAN for x in grid),
        low=tuple(_bound(ok.get(x), "latency_us_ci_low") if latency else NAN for x in grid),
        high=tuple(_bound(ok.get(x), "latency_us_ci_high") if latency else NAN for x in grid),
        hollow=tuple((p["context"], p[column]) for p in doubtful),
        failed=tuple(p["context"] for p in points if p["status"] not in TIMED and (p["context"] or 0) > 0),
    )


def _bound(point: dict[str, Any] | None, column: str) -> float:
    value = point and point[column]
    return float(value) if value and value > 0 else NAN


def _drawable(point: dict[str, Any], column: str) -> bool:
    return (point[column] or 0) > 0 and (point["context"] or 0) > 0


def _left_out(name: str, points: list[dict[str, Any]], column: str) -> list[str]:
    timed = [p for p in points if p["status"] in TIMED]
    empty = [p for p in timed if p[column] is None]
    low = [p for p in timed if p not in empty and not _drawable(p, column)]
    unplaced = [p for p in points if p["status"] not in TIMED and p["context"] is None]
    cases = ((low, "not shown (<= 0 on a log axis)"), (empty, f"not shown (no {column} recorded)"))
    return [
        f"{len(left)} of {len(timed)} points of {name} {why}: {', '.join(map(_place, left[:6]))}"
        for left, why in cases
        if left
    ] + [f"{name} has no point at all (row {p['key']}): {p['status']}; the gaps table has the reason" for p in unplaced]


def _place(point: dict[str, Any]) -> str:
    return f"{point['scope']} at {tokens(point['context'])} (row {point['key']})"
