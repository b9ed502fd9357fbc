"""Bytes per token against perplexity: hollow as converted, filled after distillation, a star for the original."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from experiments.scored import Scored
from experiments.telling.figures.axes import value_axis
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.endings import outside_legend
from experiments.telling.figures.style import INK, MUTED, Style, apart
from experiments.telling.judging.numbers import Judged, front
from experiments.telling.words import binary_size, count, number

HEADING = "Cache bytes against perplexity"
MOST_TICKS = 6
STAR = "*"
FRONT = "#a8a8a8"


@dataclass(frozen=True)
class Title:
    """What stands above the axes."""

    title: str
    predicted: bool = False


def draw(found: Sequence[Judged], base: Scored, folder: Path, stem: str) -> Drawn:
    """Save the figure."""
    figure, (ax,) = blank(HEADING, Title(title(found, base)), [""])
    looks = apart(it.label for it in found if it.before is not base)
    looks = {base.label: Style(INK, STAR, ""), **looks}
    sizes = [it.before.bytes_per_token for it in found]
    value_axis(ax, [row.perplexity for it in found for row in it.rows], "perplexity of held-out text, lower is better")
    _byte_axis(ax, sizes)
    ax.axhline(base.perplexity, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    best = [it.last for it in front(found)]
    sizes, values = [row.bytes_per_token for row in best], [row.perplexity for row in best]
    ax.plot(sizes, values, color=FRONT, linewidth=1.4, drawstyle="steps-post", zorder=1)
    for it in found:
        _variant(ax, it, looks[it.label])
    remarks = [
        "Hollow: as converted. Filled: exact, or after distillation, each layer on its own. Dashed: the original's.",
        "Grey line: the Pareto front, of variants as last trained. Bytes: one layer, one token. Perplexity starts at "
        "no zero; windows are few, the table has intervals.",
    ]
    footnote(figure, remarks)
    outside_legend(figure, {it.label: looks[it.label] for it in found}, lines=False)
    save(figure, folder, stem)
    said = "; ".join(_said(it) for it in found)
    return Drawn(stem, HEADING, f"{HEADING}, log-log, {title(found, base)}. {said}.", tuple(remarks))


def title(found: Sequence[Judged], base: Scored) -> str:
    """Model, text and training, for a figure that stands alone."""
    steps = sorted({it.after.steps for it in found if it.after})
    trained = f"; distilled for {' or '.join(map(str, steps))} steps per layer" if steps else "; nothing was trained"
    return f"{base.checkpoint}, {base.dtype}, {base.tokens:,} tokens of {base.corpus}{trained}"


def _variant(ax: Axes, it: Judged, style: Style) -> None:
    size = it.before.bytes_per_token
    mark: Any = {"color": style.colour, "markeredgewidth": 1.6, "ms": 13 if style.marker == STAR else 8, "zorder": 3}
    if it.after is not None:
        ends = [it.before.perplexity, it.after.perplexity]
        ax.plot([size, size], ends, color=style.colour, linewidth=1.2, zorder=2)
    if it.after is not None or not it.before.exact:
        ax.plot(size, it.before.perplexity, style.marker, fillstyle="none", **mark)
    if it.after is not None or it.before.exact:
        ax.plot(size, it.last.perplexity, style.marker, **mark)


def _byte_axis(ax: Axes, sizes: Sequence[float]) -> None:
    low, high = min(sizes) / 1.25, max(sizes) * 1.25
    ax.set_xscale("log", base=2)
    ax.set_xlim(low, high)
    powers = [2.0**n for n in range(64) if low <= 2.0**n <= high] or [min(sizes)]
    ax.xaxis.set_major_locator(FixedLocator(powers[:: -(-len(powers) // MOST_TICKS)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: binary_size(v)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("cache per token and layer")


def _said(it: Judged) -> str:
    after = "" if it.after is None else f", after distillation {number(it.after.perplexity)}"
    return f"{it.label} {count(it.before.bytes_per_token)} B {number(it.before.perplexity)}{after}"
