"""All figures of a report: four per setting and the support matrix of several backends, in one look.

A variant has one style throughout.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from experiments.telling.crossing import Map
from experiments.telling.evidence import Evidence
from experiments.telling.figures import bandwidth, cache, crossover, latency, parts, roofline, saving
from experiments.telling.figures import evidence as papers
from experiments.telling.figures import support as matrix
from experiments.telling.figures.canvas import Drawn, look
from experiments.telling.figures.style import Style, styles
from experiments.telling.parts import parts as parts_section
from experiments.telling.parts import taken_apart
from experiments.telling.saving import saving as saving_section
from experiments.telling.saving import told
from experiments.telling.section import Section
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
        return [matrix.draw(it, folder, _stem(it.decision.setting, "support")) if it else None for it in supports]


def draw_sections(pages: Sequence[Setting], folder: Path) -> list[Section]:
    """The sections that stand only where their rows do, each with its figures drawn."""
    look_of = styles(label for page in pages for label in page.variants)
    found = []
    with look():
        for n, page in enumerate(pages, start=1):
            if told(page):
                drawn = [
                    saving.draw_step(page, look_of, folder, _stem(page, "saving-step")),
                    saving.draw_added(page, look_of, folder, _stem(page, "saving-added")),
                ]
                found.append(saving_section(page, n, drawn))
            if taken_apart(page):
                found.append(parts_section(page, n, parts.draw(page, folder, _stem(page, "parts"))))
    return found


def draw_maps(pages: Sequence[Setting], found: Sequence[Map], folder: Path) -> list[Drawn | None]:
    """Draw who wins where, one figure per map that can be read."""
    look_of = styles(label for page in pages for label in page.variants)
    with look():
        return [
            crossover.draw(it, look_of, folder, _stem(it.setting, "crossover")) if it.legible else None for it in found
        ]


def draw_evidence(pages: Sequence[Setting], evidence: Sequence[Evidence], folder: Path) -> Drawn | None:
    """Draw what papers report, in the report's own colours; None where none of it can be placed."""
    with look():
        return papers.draw(evidence, styles(label for page in pages for label in page.variants), folder, "evidence")


def _draw_page(page: Setting, look_of: dict[str, Style], folder: Path) -> list[Drawn]:
    return [figure.draw(page, look_of, folder, _stem(page, name)) for name, figure in FIGURES.items()]


def _stem(page: Setting, name: str) -> str:
    return f"{page.slug}-{name}" if page.slug else name
