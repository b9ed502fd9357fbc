"""The figures that every report has room for: four per setting, support, maps and published evidence, in one look.

A variant has one style throughout. What stands in sections of its own is in ``gallery``.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from experiments.telling.crossing import Map
from experiments.telling.evidence import Evidence
from experiments.telling.figures import bandwidth, cache, crossover, latency, roofline
from experiments.telling.figures import evidence as papers
from experiments.telling.figures import support as matrix
from experiments.telling.figures.canvas import Drawn, look
from experiments.telling.figures.style import Style, styles
from experiments.telling.scene import stem_of
from experiments.telling.setting import Setting
from experiments.telling.support import Support

FIGURES: Mapping[str, ModuleType] = {
    "cache": cache,
    "latency": latency,
    "bandwidth": bandwidth,
    "roofline": roofline,
}


def draw_all(pages: Sequence[Setting], folder: Path, silent: Collection[int] = ()) -> list[list[Drawn]]:
    """Draw every figure of every setting into ``folder`` as PNG and SVG; one list per setting, in the order given.

    Settings whose number, from 1, is ``silent`` have none.
    """
    look_of = styles(label for page in pages for label in page.variants)
    with look():
        return [[] if n in silent else _draw_page(page, look_of, folder) for n, page in enumerate(pages, start=1)]


def draw_supports(supports: Sequence[Support | None], folder: Path) -> list[Drawn | None]:
    """Draw each support matrix there is."""
    with look():
        return [matrix.draw(it, folder, stem_of(it.decision.setting, "support")) if it else None for it in supports]


def draw_maps(pages: Sequence[Setting], found: Sequence[Map], folder: Path) -> list[Drawn | None]:
    """Draw who wins where, one figure per map that can be read."""
    look_of = styles(label for page in pages for label in page.variants)
    with look():
        return [
            crossover.draw(it, look_of, folder, stem_of(it.setting, "crossover")) if it.legible else None
            for it in found
        ]


def draw_evidence(pages: Sequence[Setting], evidence: Sequence[Evidence], folder: Path) -> Drawn | None:
    """Draw what papers report, in the report's own colours; None where none of it can be placed."""
    with look():
        return papers.draw(evidence, styles(label for page in pages for label in page.variants), folder, "evidence")


def _draw_page(page: Setting, look_of: dict[str, Style], folder: Path) -> list[Drawn]:
    return [figure.draw(page, look_of, folder, stem_of(page, name)) for name, figure in FIGURES.items()]
