"""All figures of a report: four per setting and the support matrix of several backends, in one look.

A variant has one style throughout.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from experiments.telling.figures import bandwidth, cache, latency, roofline
from experiments.telling.figures import support as matrix
from experiments.telling.figures.canvas import Drawn, look
from experiments.telling.figures.style import Style, styles
from experiments.telling.setting import Setting
from experiments.telling.support import Support

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


def draw_supports(supports: Sequence[Support | None], folder: Path) -> list[Drawn | None]:
    """Draw each support matrix there is."""
    with look():
        return [matrix.draw(it, folder, _stem(it.decision.setting, "support")) if it else None for it in supports]


def _draw_page(page: Setting, look_of: dict[str, Style], folder: Path) -> list[Drawn]:
    return [figure.draw(page, look_of, folder, _stem(page, name)) for name, figure in FIGURES.items()]


def _stem(page: Setting, name: str) -> str:
    return f"{page.slug}-{name}" if page.slug else name
