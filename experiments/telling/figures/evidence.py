"""Published evidence, drawn: bytes per token against what a paper measured, a panel and a Pareto front per paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from experiments.telling.evidence import Evidence, Finding, Metric, front
from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.endings import NAME_SIZE, spread
from experiments.telling.figures.style import MUTED, Style, styles
from experiments.telling.words import binary_size, count

HEADING = "Published: cache bytes against quality"
MARGIN = 0.12  # of the span of values, above and below
MOST_TICKS = 5
FRONT = "#a8a8a8"
GAP = 0.075  # of a panel's height from one name to the next


@dataclass(frozen=True)
class _Title:
    """What stands above the panels."""

    title: str = "Quoted from papers, not measured here; panels are not comparable"
    predicted: bool = False


def draw(evidence: Sequence[Evidence], look_of: Mapping[str, Style], folder: Path, stem: str) -> Drawn | None:
    """Save the figure of those papers whose bytes can be counted; None if there are none."""
    shown = [it for it in evidence if it.shape is not None]
    if not shown:
        return None
    figure, axes = blank(HEADING, _Title(), [f"{it.title}\n{it.source}" for it in shown], shared=False)
    for ax, it in zip(axes, shown, strict=True):
        _panel(ax, it, look_of)
    remarks = [
        "Hollow: published, no interval given. Bytes: one layer, the paper's own heads. No quality axis starts at 0.",
        "Line: the Pareto front inside a paper; no model of that paper caches fewer bytes and is as good.",
    ]
    footnote(figure, remarks)
    save(figure, folder, stem)
    said = "; ".join(_told(it) for it in shown)
    return Drawn(stem, HEADING, f"{HEADING}, quoted from papers, not measured here. {said}.", tuple(remarks))


def _panel(ax: Axes, it: Evidence, look_of: Mapping[str, Style]) -> None:
    metric = _drawn(it)
    sizes = [f.bytes_per_token or 0.0 for f in it.findings]
    values = [f.values[metric.key] for f in it.findings]
    low, high = min(values), max(values)
    room = MARGIN * ((high - low) or 1.0)
    ax.set_ylim(low - room, high + room)
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / 1.5, max(sizes) * 4)  # names stand right of their points
    powers = [2.0**n for n in range(64) if min(sizes) / 1.5 <= 2.0**n <= max(sizes) * 2]
    ax.xaxis.set_major_locator(FixedLocator(powers[:: -(-len(powers) // MOST_TICKS)]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: binary_size(v)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    corner: Any = {"transform": ax.transAxes, "ha": "right", "fontsize": NAME_SIZE, "color": MUTED}
    ax.text(0.985, 0.03, "published", style="italic", **corner)
    ax.set_xlabel("cache per token and layer")
    ax.set_ylabel(f"{metric.name}, {metric.better} is better")
    _front(ax, it)
    heights = [(v - low + room) / (high - low + 2 * room) for v in values]
    for finding, size, value, at in zip(it.findings, sizes, values, spread(heights, GAP, 0.03, 0.97), strict=True):
        style = _style(finding.variant, look_of)
        ax.plot(size, value, style.marker, color=style.colour, fillstyle="none", markeredgewidth=1.6, ms=8)
        level = low - room + at * (high - low + 2 * room)
        place: Any = {"textcoords": "offset points", "va": "center", "fontsize": NAME_SIZE, "color": MUTED}
        place["bbox"] = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none"}  # over the front
        ax.annotate(finding.name, xy=(size, level), xytext=(9, 0), **place)


def _front(ax: Axes, it: Evidence) -> None:
    """Steps from one model of the front to the next: a mixture of two was not published."""
    best = front(it)
    sizes, values = [f.bytes_per_token or 0.0 for f in best], [f.values[_drawn(it).key] for f in best]
    ax.plot(sizes, values, color=FRONT, linewidth=1.4, drawstyle="steps-post", zorder=1)


def _drawn(it: Evidence) -> Metric:
    return it.metrics[0]


def _style(variant: str, look_of: Mapping[str, Style]) -> Style:
    """As the report's other figures have it, also where it shows a variant's forms apart."""
    for label, style in look_of.items():
        if label.split(" (")[0] == variant:
            return style
    return styles([variant])[variant]


def _told(it: Evidence) -> str:
    each, best = (", ".join(said) for said in ([_said(it, f) for f in it.findings], [f.name for f in front(it)]))
    return f"{it.source}, {_drawn(it).name}: {each}; Pareto front: {best}"


def _said(it: Evidence, finding: Finding) -> str:
    return f"{finding.name} {count(finding.bytes_per_token)} B {_drawn(it).said(finding)}"
