"""A blank figure with the report's look, its small print, and how it is saved."""

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Protocol

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from experiments.telling.figures.palette import with_palette
from experiments.telling.figures.style import GRID, INK, MUTED
from experiments.telling.tables import Table

DPI = 160
LEFT = 0.012  # where titles and footnotes start, as a fraction of the figure's width
PREDICTED_GROUND = "#f1f1f1"
_LOOK: Any = {
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.titlesize": 10,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so every machine draws the same
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "kvariants",  # without it every SVG gets random ids
    "text.color": INK,
    "text.parse_math": False,  # a device may be called "A$100"
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True)
class Drawn:
    """A saved figure: the ``stem`` of its PNG and SVG files, heading, alt text, and remarks for the caption.

    ``table`` holds its numbers, where none stands beside it.
    """

    stem: str
    heading: str
    alt: str
    remarks: tuple[str, ...]
    table: Table | None = None


class Titled(Protocol):
    """What stands above a figure: a setting of measured rows, or whatever else says what it shows."""

    @property
    def title(self) -> str:
        """What a figure must say to stand alone."""

    @property
    def predicted(self) -> bool:
        """Whether the values stand for measurements that were not made."""


@contextmanager
def look() -> Iterator[None]:
    """The report's look, whatever the user's matplotlibrc says."""
    with mpl.rc_context(), warnings.catch_warnings():
        # A device or model may be named in a script the font lacks; the box drawn instead must not stop a report.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update({**sns.axes_style("whitegrid"), **sns.plotting_context("paper"), **_LOOK})
        yield


def blank(
    heading: str, setting: Titled, panels: Sequence[str], height: float = 5.0, shared: bool = True
) -> tuple[Figure, list[Axes]]:
    """A figure of side-by-side panels, whose axes have the same limits if ``shared``.

    No pyplot, so no window and nothing stays open.
    """
    wide = len(panels) > 1
    figure = Figure(figsize=(9.6 if wide else 6.4, height), layout="constrained")
    FigureCanvasAgg(figure)
    # Two texts at one place, because a text has one weight: the first line of the layout's title is left free.
    figure.suptitle("\n" + _wrapped(setting.title, 106 if wide else 70), x=LEFT, ha="left")
    top = 1 - mpl.rcParams["figure.constrained_layout.h_pad"] / figure.get_figheight()
    figure.text(LEFT, top, heading, weight="bold", size=11, ha="left", va="top").set_in_layout(False)
    axes = figure.subplots(1, len(panels), sharex=shared, sharey=shared, squeeze=False)[0]
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_title(panel)
        ax.tick_params(labelleft=True)
        if setting.predicted:
            ax.set_facecolor(PREDICTED_GROUND)
    return figure, list(axes)


def footnote(figure: Figure, remarks: Sequence[str]) -> None:
    """Small print below the axes."""
    width = 118 if len(figure.axes) > 1 else 78
    text = "\n".join(_wrapped(remark, width) for remark in remarks)
    figure.supxlabel(text, x=LEFT, ha="left", fontsize=8, color=MUTED)


def save(figure: Figure, folder: Path, stem: str) -> None:
    """Write ``stem.png`` and ``stem.svg``, byte for byte the same for the same figure.

    The PNG has a palette, and so takes a third of the bytes.
    """
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # settled: both files show one layout, and it is computed once
    pixels = BytesIO()
    figure.savefig(pixels, dpi=DPI, metadata={"Software": None}, format="png")
    with Image.open(pixels) as image:
        with_palette(image).save(folder / f"{stem}.png", optimize=True, dpi=(DPI, DPI))
    figure.savefig(folder / f"{stem}.svg", metadata={"Date": None})


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width))
