"""Predicted against measured, both logarithmic: a point on the diagonal was predicted exactly."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.endings import NAME_SIZE, keys
from experiments.telling.figures.style import GRID, INK, Style
from experiments.telling.foretold import BAND, HEADING, Held, Pair
from experiments.telling.frame import distinct, family_order
from experiments.telling.words import percent, plain_number

ROOM = 1.25  # beyond the least and the greatest time
READING = f"Line: predicted exactly; grey: measured within {percent(BAND)} of predicted."


def draw(it: Held, looks: Mapping[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure: a panel per scope, us predicted along, us measured up, with the median's interval."""
    figure, axes = blank(HEADING, it, it.scopes, shared=False)
    for ax, scope in zip(axes, it.scopes, strict=True):
        _panel(ax, [pair for pair in it.pairs if pair.scope == scope], looks)
    names = sorted(distinct(pair.variant for pair in it.pairs), key=family_order)
    shown = {name: looks[name] for name in names}
    axes[0].legend(handles=keys(shown, lines=False), loc="upper left", frameon=False, fontsize=NAME_SIZE)
    remarks = [f"{it.said[0].upper()}{it.said[1:]}.", f"{READING} Whisker: confidence interval of the median."]
    footnote(figure, remarks)
    save(figure, folder, stem)
    return Drawn(stem, HEADING, f"{HEADING}, log-log, {it.title}. {it.said}.", tuple(remarks))


def _panel(ax: Axes, pairs: Sequence[Pair], looks: Mapping[str, Style]) -> None:
    times = [us for pair in pairs for us in (pair.predicted, pair.measured, pair.low, pair.high) if us]
    low, high = min(times) / ROOM, max(times) * ROOM
    ends = np.array([low, high])
    ax.fill_between(ends, ends * (1 - BAND), ends * (1 + BAND), color=GRID, alpha=0.6, linewidth=0)
    ax.plot(ends, ends, color=INK, linewidth=1.0)
    for pair in pairs:
        style = looks[pair.variant]
        if pair.low and pair.high:
            ax.vlines(pair.predicted, pair.low, pair.high, color=style.colour, linewidth=1.0)
        edge: Any = {"ms": 6, "markeredgecolor": "white", "markeredgewidth": 0.5}
        ax.plot(pair.predicted, pair.measured, style.marker, color=style.colour, **edge)
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 300 else (1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda v, _: plain_number(v)))
        axis.set_minor_locator(NullLocator())
    ax.set(xlabel="predicted (µs per layer)", ylabel="measured (µs per layer, p50)")
