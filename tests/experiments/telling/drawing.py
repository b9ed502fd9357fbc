"""What an axes shows, read from its artists."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.telling.figures.canvas import Drawn
from experiments.telling.figures.style import styles
from experiments.telling.setting import Setting

Draw = Callable[[Any, Setting], tuple[Figure, Drawn]]
FAMILY = ("mha", "gqa", "mqa", "mla")


def colour(name: str) -> str:
    """A variant's colour."""
    return styles([name])[name].colour


def points(ax: Axes, colour: str, filled: bool = True) -> list[tuple[float, float]]:
    """Data points drawn with a marker in a colour, those of the keys beside the axes not counted."""
    found: list[tuple[float, float]] = []
    for line in ax.lines:
        if line.get_transform() == ax.transData and line.get_color() == colour and line.get_marker() != "x":
            places = zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True)
            found += [p for p in places if not math.isnan(p[1]) and filled == (line.get_fillstyle() != "none")]
    return found


def all_points(ax: Axes, names: Sequence[str] = FAMILY) -> list[tuple[float, float]]:
    """Data points of several variants."""
    return [p for name in names for p in points(ax, colour(name))]


def crosses(ax: Axes) -> list[float]:
    """Contexts with a failure mark on the axis."""
    foot = [line for line in ax.lines if line.get_marker() == "x" and line.get_markersize() == 7]
    return [float(np.asarray(line.get_xdata())[0]) for line in foot]
