"""Which variant wins where: a square per context and batch in the winner's colour; one that nothing settles is grey."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from experiments.telling.crossing import Cell, Map
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.style import GRID, INK, Style
from experiments.telling.words import times, tokens

HEADING = "Which variant wins where"
FRAME, ROW = 2.3, 0.62  # inches: what titles and small print take, and a line of squares
READING = "Colour and name: the winner by the rule. x: how much longer the next one takes. Grey: no single winner."


def draw(it: Map, looks: Mapping[str, Style], folder: Path, stem: str) -> Drawn:
    """Save the figure: a panel per number of ranks, contexts from left to right, batches from below to above."""
    ranks, batches, contexts = (it.values(axis) for axis in ("tp", "batch", "context"))
    titles = [f"tp {tp}" if len(ranks) > 1 else "" for tp in ranks]
    figure, axes = blank(HEADING, it, titles, FRAME + ROW * max(2, len(batches)))
    for ax, tp in zip(axes, ranks, strict=True):
        here = [cell for cell in it.cells if cell.at["tp"] == tp]
        for cell in here:
            _square(ax, contexts.index(cell.at["context"]), batches.index(cell.at["batch"]), cell, looks)
        ax.grid(visible=False)
        ax.set(xlim=(-0.5, len(contexts) - 0.5), ylim=(-0.5, len(batches) - 0.5), xlabel="cached tokens")
        ax.set_xticks(range(len(contexts)), [tokens(context) for context in contexts])
        ax.set_yticks(range(len(batches)), [str(batch) for batch in batches])
        ax.tick_params(length=0)
    axes[0].set_ylabel("batch")
    footnote(figure, [READING])
    save(figure, folder, stem)
    said = "; ".join(f"{', '.join(f'{a} {v}' for a, v in cell.at.items())}: {cell.said}" for cell in it.cells)
    return Drawn(stem, HEADING, f"{HEADING}, {it.title}. {said}.", ())


def _square(ax: Axes, x: int, y: int, cell: Cell, looks: Mapping[str, Style]) -> None:
    look = looks.get(cell.winners[0]) if len(cell.winners) == 1 else None
    colour = look.colour if look else GRID
    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=colour, edgecolor="white", linewidth=2, alpha=0.28))
    if look:
        ax.plot([x - 0.33], [y + 0.27], marker=look.marker, color=colour, markersize=7, clip_on=False)
    lead = f"\n{times(cell.lead)}" if cell.lead and cell.lead > 1 else ""
    ax.text(x, y, "\nor ".join(cell.winners) + lead, ha="center", va="center", fontsize=9, color=INK)
