"""The support matrix as a picture: how much of its roofline every combination reaches, and which are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.style import COLOURS, GRID, INK, MUTED
from experiments.telling.support import NOT_RUN, Cell, Support
from experiments.telling.words import percent, tokens

HEADING = "Share of the roofline by backend and storage"
DARK = 0.85  # from this share on the ground is so dark that the number is white
WIDTH, LETTER = 500, 0.62  # points of all cells together; width of a letter, of its size
SIGNS = {"refused": "", NOT_RUN: "\N{EN DASH}"}
FRAME, ROW = 1.9, 0.42  # inches: what titles and small print take, and a line of cells


def draw(it: Support, folder: Path, stem: str) -> Drawn:
    """Save the figure: a panel per storage, a line per backend, a column per variant."""
    height = FRAME + ROW * max(len(it.backends), 3)
    figure, axes = blank(HEADING, it.decision.setting, it.storages, height)
    for ax, storage in zip(axes, it.storages, strict=True):
        _panel(ax, it, storage)
        ax.tick_params(labelleft=ax is axes[0])
    _scale(figure, axes)
    footnote(figure, [_reading(it)])
    save(figure, folder, stem)
    return Drawn(stem, HEADING, f"{HEADING}, {it.decision.setting.title}. {_reading(it)} {_best(it)}", ())


def _panel(ax: Axes, it: Support, storage: str) -> None:
    cells = [[it.cells.get(((b, storage), v), Cell(NOT_RUN)) for v in it.variants] for b in it.backends]
    shares = np.array([[np.nan if c.share is None else c.share for c in line] for line in cells], dtype=float)
    names: dict[str, Any] = {"xticklabels": it.variants, "yticklabels": it.backends}
    colours = sns.light_palette(COLOURS[0], as_cmap=True)
    sns.heatmap(shares, ax=ax, vmin=0, vmax=1, cmap=colours, cbar=False, linewidths=1, mask=np.isnan(shares), **names)
    for y, line in enumerate(cells):
        for x, cell in enumerate(line):
            _mark(ax, x, y, cell, WIDTH / len(it.storages) / len(it.variants))
    ax.tick_params(length=0)
    ax.tick_params(axis="x", rotation=0 if max(map(len, it.variants)) < 5 else 60)
    ax.tick_params(axis="y", rotation=0)


def _mark(ax: Axes, x: int, y: int, cell: Cell, room: float) -> None:
    """The number on a cell's ground, a frame around a variant's best, hatching where there is no time.

    ``room``: points that a cell is wide, which a long status must not leave.
    """
    if cell.us is None:
        hatch = "////" if cell.status == "refused" else ""
        ax.add_patch(Rectangle((x, y), 1, 1, facecolor=GRID, edgecolor="white", hatch=hatch, linewidth=1))
    said = percent(cell.share) if cell.us is not None else SIGNS.get(cell.status, cell.status)
    white = cell.share is not None and cell.share >= DARK
    ax.text(
        x + 0.5,
        y + 0.5,
        said,
        ha="center",
        va="center",
        fontsize=min(8, room / LETTER / max(len(said), 1)),
        color="white" if white else INK,
    )
    if cell.best:
        ax.add_patch(Rectangle((x + 0.04, y + 0.04), 0.92, 0.92, fill=False, edgecolor=INK, linewidth=1.6))


def _scale(figure: Figure, axes: list[Axes]) -> None:
    bar = figure.colorbar(axes[0].collections[0], ax=axes, shrink=0.9, aspect=24, pad=0.01)
    bar.set_ticks([0, 0.5, 1], labels=["0 %", "50 %", "100 %"])
    bar.outline.set_edgecolor(MUTED)


def _reading(it: Support) -> str:
    return (
        f"{it.scope} at context {tokens(it.context)}, {it.decision.temperature or 'any'} rows: floor / median. "
        "Hatched: refused, for the reasons below the table. Dash: not run. Framed: the fastest of a variant."
    )


def _best(it: Support) -> str:
    said = [
        f"{variant} {percent(cell.share)} by {' on '.join(place)}"
        for (place, variant), cell in sorted(it.cells.items(), key=lambda item: it.variants.index(item[0][1]))
        if cell.best
    ]
    return f"Fastest: {', '.join(said) or 'none'}."
