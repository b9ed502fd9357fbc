"""Trainings, drawn: a task a panel, scores against cache bytes, and how they came about."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from experiments.telling.figures.canvas import Drawn, blank, footnote, look, save
from experiments.telling.figures.curve import NAN, Curve, draw_curves
from experiments.telling.figures.endings import NAME_SIZE, name_curves, spread
from experiments.telling.figures.style import MUTED, Style, styles
from experiments.telling.learning.results import ENOUGH, Result, Standing, score
from experiments.telling.words import binary_size, plain_number

AGAINST, CURVES = "Trained from scratch: cache bytes against what was learned", "Learning curves on held-out data"
LABELS = {"recall": "recall accuracy", "text": "bits per byte"}
DASHED = f"Dashed: {ENOUGH:.0%}, which the baseline must reach with every seed, or nothing is ranked."
GAP = 0.075  # of a panel's height from one name to the next
NEAR = 1.45  # times the bytes; names of points further apart stand clear of each other
ASIDE = 1.06  # times the bytes; far less than what tells variants apart
LEAST_SHOWN = 0.9  # of recall: what its axis reaches down to
MARGIN = 0.1  # of the span of values, above and below


@dataclass(frozen=True)
class _Title:
    title: str
    predicted: bool = False


def draw_against(found: Sequence[Result], folder: Path, stem: str, ranked: bool) -> Drawn:
    """Scores with 95 % intervals over bytes per token and layer."""
    with look():
        figure, axes = blank(AGAINST, _title(found), [_panel_name(it) for it in found], shared=False)
        for ax, it in zip(axes, found, strict=True):
            _against(ax, it)
        notes = [
            "Bars: 95 % Student's t intervals over seeds, cut at 0 and 1. Dots: seeds. Parameters are matched.",
            *([DASHED] if any(it.task == "recall" for it in found) else []),
            *([] if ranked else ["No ranking: the page says why."]),
        ]
        footnote(figure, notes)
        save(figure, folder, stem)
    said = "; ".join(f"{LABELS[it.task]}: {', '.join(_told(s) for s in it.standings)}" for it in found)
    return Drawn(stem, AGAINST, f"{AGAINST}. {said}.", tuple(notes))


def draw_curves_of(found: Sequence[Result], folder: Path, stem: str) -> Drawn:
    """Means over seeds, and each seed, from the first evaluation after the start."""
    with look():
        figure, axes = blank(CURVES, _title(found), [_panel_name(it) for it in found], shared=False)
        drawn = []
        for ax, it in zip(axes, found, strict=True):
            look_of = _looks(it)
            drawn.append([_curve(standing, look_of[standing.one.attention]) for standing in it.standings])
            for standing in it.standings:
                _seeds(ax, standing, look_of[standing.one.attention])
            draw_curves(ax, drawn[-1])
            ax.set_xlabel("steps")
            _score_axis(ax, it)
        notes = [
            "Thick: means over seeds; thin: each seed. The same batches for every variant; data that no training saw."
        ]
        footnote(figure, notes)
        name_curves(figure, axes, drawn)
        save(figure, folder, stem)
    return Drawn(stem, CURVES, f"{CURVES}: {', '.join(LABELS[it.task] for it in found)} over steps.", tuple(notes))


def _against(ax: Axes, it: Result) -> None:
    look_of = _looks(it)
    sizes = _apart([standing.one.cache_bytes for standing in it.standings])
    ends = [end for standing in it.standings for end in _ends(standing)]
    if it.task == "recall":
        ends += [LEAST_SHOWN, 1.0]  # a wrong target among thousands is not to fill the axis
    low, high = min(ends), max(ends)
    room = MARGIN * ((high - low) or 1.0)
    low, high = low - room, high + room
    ax.set_xscale("log", base=2)
    ax.set_xlim(min(sizes) / 1.4, max(sizes) * 2.4)  # names stand right of their points
    powers = [2.0**n for n in range(64) if min(sizes) / 1.4 <= 2.0**n <= max(sizes) * 1.5]
    ax.xaxis.set_major_locator(FixedLocator(powers))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: binary_size(v)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("cache per token and layer (fp32)")
    _score_axis(ax, it)
    ax.set_ylim(low, high)
    heights = [(standing.score.mean - low) / (high - low) for standing in it.standings]
    for standing, size, at in zip(it.standings, sizes, _levels(sizes, heights), strict=True):
        style = look_of[standing.one.attention]
        ax.vlines(size, *_ends(standing), color=style.colour, linewidth=1.4)
        seeds = [score(row) for row in standing.rows]
        ax.plot([size] * len(seeds), seeds, ".", color=style.colour, ms=5, alpha=0.8)
        ax.plot(size, standing.score.mean, style.marker, color=style.colour, ms=7, markeredgecolor="white")
        place: Any = {"textcoords": "offset points", "va": "center", "fontsize": NAME_SIZE, "color": MUTED}
        place["bbox"] = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
        ax.annotate(standing.one.attention, xy=(size, low + at * (high - low)), xytext=(9, 0), **place)


def _apart(sizes: Sequence[float]) -> list[float]:
    """As they are, but for variants of the same bytes, which would hide each other: a little to the right."""
    return [size * ASIDE ** list(sizes[:i]).count(size) for i, size in enumerate(sizes)]


def _levels(sizes: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Where names stand: at their points, but for those so near each other that names would cover them."""
    levels = [0.0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda i: sizes[i])
    while order:
        near = [i for i in order if sizes[i] < NEAR * sizes[order[0]]]
        order = order[len(near) :]
        for i, level in zip(near, spread([heights[i] for i in near], GAP, 0.03, 0.97), strict=True):
            levels[i] = level
    return levels


def _score_axis(ax: Axes, it: Result) -> None:
    better = "higher" if it.task == "recall" else "lower"
    ax.set_ylabel(f"{LABELS[it.task]}, {better} is better")
    ax.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: plain_number(round(v, 6))))
    if it.task == "recall":
        ax.axhline(ENOUGH, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)


def _curve(standing: Standing, style: Style) -> Curve:
    seeds = [standing.at(point) for point in _shown(standing)]
    steps, means = _steps(standing), tuple(sum(values) / len(values) for values in seeds)
    nothing = tuple(NAN for _ in steps)
    return Curve(standing.one.attention, style, False, steps, means, nothing, nothing, (), ())


def _seeds(ax: Axes, standing: Standing, style: Style) -> None:
    """A thin line per seed: of recall a mean of 0.7 may be two that learned it and one that did not."""
    for values in zip(*(standing.at(point) for point in _shown(standing)), strict=True):
        ax.plot(_steps(standing), values, color=style.colour, linewidth=0.8, alpha=0.5)


def _shown(standing: Standing) -> range:
    """Points of the curve: all but what an untrained decoder is worth, which would take most of the axis."""
    return range(1, len(standing.one.curve or []))


def _steps(standing: Standing) -> tuple[int, ...]:
    return tuple(int(at[0]) for at in (standing.one.curve or [])[1:])


def _ends(standing: Standing) -> tuple[float, float]:
    """The interval, as far as such a score goes; the mean itself for one seed."""
    mean, half = standing.score.mean, standing.score.half or 0.0
    most = 1.0 if standing.one.task == "recall" else float("inf")
    return max(0.0, mean - half), min(most, mean + half)


def _looks(it: Result) -> dict[str, Style]:
    return styles(standing.one.attention for standing in it.standings)


def _panel_name(it: Result) -> str:
    row = it.any
    what = f"{row.pairs} pairs in {row.context} tokens" if it.task == "recall" else f"{row.context} bytes"
    return f"{it.task}: {what}, {row.steps} steps of {row.batch}"


def _title(found: Sequence[Result]) -> _Title:
    row = found[0].any
    counts = sorted({standing.score.n for it in found for standing in it.standings})
    seeds = f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]}-{counts[-1]} seeds"
    return _Title(
        f"{row.layers} layers, width {row.hidden_size}, {row.heads} heads, {row.dtype}, {seeds}, {row.device}"
    )


def _told(standing: Standing) -> str:
    return f"{standing.one.attention} {standing.score.mean:.4g} at {standing.one.cache_bytes:.0f} B"
