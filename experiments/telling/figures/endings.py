"""Names at the ends of lines, spread so that none covers another; a legend where they do not fit."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from experiments.telling.figures.curve import LOWEST_MARK, Curve
from experiments.telling.figures.style import INK, MUTED, Style

NAME_SIZE = 9  # points
LINE_HEIGHT = 1.45 * NAME_SIZE  # points from one name to the next
KEY_AT, NAME_AT = 16, 23  # points from the axes to the marker and to the name
SHIFT = 2  # points that a name may be moved before a leader ties it to its curve
LEGEND_ROWS = 20


def name_curves(figure: Figure, axes: Sequence[Axes], found: Sequence[Sequence[Curve]]) -> None:
    """Write each curve's name beside its last point in every panel, or one legend if a panel has too many."""
    figure.draw_without_rendering()  # the constrained layout must have settled before heights are known
    visible = [[c for c in panel if c.last or c.failed] for panel in found]
    fits = all(len(panel) * LINE_HEIGHT <= _height(figure, ax) for ax, panel in zip(axes, visible, strict=True))
    if not fits:
        outside_legend(figure, {c.name: c.style for panel in found for c in panel})
        return
    for ax, panel in zip(axes, visible, strict=True):
        _name_panel(figure, ax, panel)


def keys(styles: Mapping[str, Style], lines: bool = True) -> list[Line2D]:
    """Legend handles, in the order given; without ``lines`` markers alone."""
    return [
        Line2D([], [], color=s.colour, marker=s.marker, linestyle=s.linestyle if lines else "none", label=name)
        for name, s in styles.items()
    ]


def outside_legend(figure: Figure, styles: Mapping[str, Style], lines: bool = True) -> None:
    """One entry per name, right of the axes."""
    columns = -(-len(styles) // LEGEND_ROWS)
    handles = keys(styles, lines)
    figure.legend(handles=handles, loc="outside right center", ncols=columns, frameon=False, fontsize=NAME_SIZE)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions as near as possible to ``wanted``, at least ``gap`` apart and inside ``[low, high]``; order kept."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    placed = [0.0] * len(wanted)
    floor = low
    for i in order:
        placed[i] = max(wanted[i], floor)
        floor = placed[i] + gap
    ceiling = high
    for i in reversed(order):
        placed[i] = min(placed[i], ceiling)
        ceiling = placed[i] - gap
    return placed


def _height(figure: Figure, ax: Axes) -> float:
    """Height of the axes in points."""
    return float(ax.get_window_extent().height / figure.dpi * 72)


def _name_panel(figure: Figure, ax: Axes, found: Sequence[Curve]) -> None:
    height = _height(figure, ax)
    wanted = [_level(ax, curve) for curve in found]
    margin = LINE_HEIGHT / 2 / height
    placed = spread(wanted, LINE_HEIGHT / height, margin, 1 - margin)
    furthest = max((c.last[0] for c in found if c.last), default=0)
    beside = ax.transAxes + ScaledTranslation(KEY_AT / 72, 0, figure.dpi_scale_trans)
    for curve, level, at in zip(found, wanted, placed, strict=True):
        moved = abs(at - level) * height > SHIFT
        if moved and curve.last and curve.last[0] == furthest:  # from a shorter curve it would look like data
            line = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.5, "shrinkA": 3, "shrinkB": 4}
            ax.annotate("", xy=curve.last, xytext=(1, at), textcoords=beside, arrowprops=line, annotation_clip=False)
        key: Any = {"color": curve.style.colour, "ms": 5, "transform": beside, "clip_on": False}
        ax.plot(1, at, curve.style.marker if curve.last else "x", **key)
        name: Any = {"xytext": (NAME_AT, 0), "textcoords": "offset points", "va": "center", "fontsize": NAME_SIZE}
        ax.annotate(curve.name, xy=(1, at), xycoords="axes fraction", color=INK, **name)


def _level(ax: Axes, curve: Curve) -> float:
    """Height of the curve's last point, as a fraction of the axes; the foot for a variant that only failed."""
    if curve.last is None:
        return LOWEST_MARK
    return float(ax.transAxes.inverted().transform(ax.transData.transform(curve.last))[1])
