"""A step's parts as stacked bars, one bar per variant, the step as a whole marked on it."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from experiments.telling.figures.canvas import Drawn, blank, footnote, save
from experiments.telling.figures.endings import NAME_SIZE
from experiments.telling.figures.style import COLOURS, INK
from experiments.telling.parts import Taken, taken_apart
from experiments.telling.setting import Setting
from experiments.telling.words import number, plain_number, spanned, tokens
from variants.contract.scopes import PARTS

HEADING = "The parts of a step"
COLOUR = dict(zip(PARTS, (COLOURS[0], COLOURS[3], COLOURS[6], COLOURS[1], COLOURS[2]), strict=True))
HATCH = dict(zip(PARTS, ("", "..", "xx", "//", "\\\\"), strict=True))  # told apart without colours too
WIDTH = 0.62


def draw(setting: Setting, folder: Path, stem: str) -> Drawn:
    """Save the figure; medians in us per layer, linear from zero, stacked in the order in which parts run."""
    found = taken_apart(setting)
    figure, (ax,) = blank(HEADING, setting, ["parts timed alone, stacked; line: the step as a whole"])
    for place, taken in enumerate(found):
        _bar(ax, place, taken)
    several = len({taken.context for taken in found}) > 1
    names = [f"{t.label}\n{tokens(t.context)}" if several else t.label for t in found]
    ax.set_xticks(range(len(found)), names)
    ax.set_xlim(-0.6, len(found) - 0.4)
    ax.set_ylabel("time per layer (µs, p50)")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: plain_number(v)))
    ax.grid(visible=False, axis="x")
    _legend(ax, found)
    where = "" if several or not found else f" At {tokens(found[0].context)} cached tokens."
    counted = [row["samples"] for taken in found for row in taken.parts.values() if row["samples"]]
    n = f" of n = {spanned(counted)} samples" if counted else ""
    footnote(figure, [f"Medians{n}; each part cold and alone, so that the sum need not be the step.{where}"])
    save(figure, folder, stem)
    return Drawn(stem, HEADING, f"{HEADING}, {setting.title}.{where} {'; '.join(map(_said, found))}.", ())


def _bar(ax: Axes, place: int, taken: Taken) -> None:
    foot = 0.0
    for part, row in taken.parts.items():
        us = float(row["latency_us_p50"])
        ax.bar(place, us, WIDTH, bottom=foot, color=COLOUR[part], hatch=HATCH[part], edgecolor="white", linewidth=0.6)
        foot += us
    if taken.step is not None:
        us = float(taken.step["latency_us_p50"])
        ax.plot([place - WIDTH / 2 - 0.06, place + WIDTH / 2 + 0.06], [us, us], color=INK, linewidth=2.0)


def _legend(ax: Axes, found: Sequence[Taken]) -> None:
    shown = [part for part in PARTS if any(part in taken.parts for taken in found)]
    bars = [ax.bar(0, 0, color=COLOUR[part], hatch=HATCH[part], edgecolor="white", label=part) for part in shown]
    ax.legend(handles=bars[::-1], loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=NAME_SIZE)


def _said(taken: Taken) -> str:
    parts = ", ".join(f"{part} {number(row['latency_us_p50'])}" for part, row in taken.parts.items())
    step = f"; step {number(taken.step['latency_us_p50'])}" if taken.step else ""
    return f"{taken.label}: {parts}{step} us"
