"""All figures of a report: four per setting, in one look, with one style per variant throughout."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from experiments.telling.figures import bandwidth, cache, latency, roofline
from experiments.telling.figures.canvas import Drawn, look
from experiments.telling.figures.style import Style, styles
from experiments.telling.setting import Setting

FIGURES: Mapping[str, ModuleType] = {
    "cache": cache,
    "latency": latency,
    "bandwidth": bandwidth,
    "roofline": roofline,
}


def draw_all(pages: Sequence[Setting], folder: Path) -> list[list[Drawn]]:
    """Draw every figure of every setting into ``folder`` as PNG and SVG; one list per setting, in the order given."""
    look_of = styles(label for page in pages for label in page.variants)
    with look():
        return [_draw_page(page, look_of, folder) for page in pages]


def _draw_page(page: Setting, look_of: dict[str, Style], folder: Path) -> list[Drawn]:
    prefix = f"{page.slug}-" if page.slug else ""
    return [figure.draw(page, look_of, folder, f"{prefix}{name}") for name, figure in FIGURES.items()]
