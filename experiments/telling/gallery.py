"""The sections that stand only where their data do, each with its figures drawn: all of them are named here.

To add one: a file with its numbers here beside, one that draws it in ``figures/``, and a line in ``SECTIONS``.
"""

from experiments.telling.figures import foretold as scatter
from experiments.telling.figures import parts as bars
from experiments.telling.figures import saving as saved
from experiments.telling.figures import throughput as rates
from experiments.telling.figures.canvas import look
from experiments.telling.foretold import foretold, held
from experiments.telling.parts import parts, taken_apart
from experiments.telling.ranks import ranks
from experiments.telling.room import room
from experiments.telling.saving import saving, told
from experiments.telling.scene import Make, Scene, stem_of
from experiments.telling.section import Section
from experiments.telling.throughput import servings, throughput


def sections(scene: Scene) -> list[Section]:
    """Every section that this report has something to say in, in the order of ``SECTIONS``."""
    with look():
        return [section for make in SECTIONS for section in make(scene)]


def _saving(scene: Scene) -> list[Section]:
    return [
        saving(
            page,
            n,
            [
                saved.draw_step(page, scene.looks, scene.folder, stem_of(page, "saving-step")),
                saved.draw_added(page, scene.looks, scene.folder, stem_of(page, "saving-added")),
            ],
        )
        for n, page in enumerate(scene.pages, start=1)
        if told(page)
    ]


def _parts(scene: Scene) -> list[Section]:
    return [
        parts(page, n, bars.draw(page, scene.folder, stem_of(page, "parts")))
        for n, page in enumerate(scene.pages, start=1)
        if taken_apart(page)
    ]


def _throughput(scene: Scene) -> list[Section]:
    found = servings(scene)
    drawn = [rates.draw(it, scene.looks, scene.folder, stem_of(it.setting, "throughput")) for it in found]
    return [throughput(found, drawn)] if found else []


def _foretold(scene: Scene) -> list[Section]:
    found = held(scene)
    drawn = [scatter.draw(it, scene.looks, scene.folder, stem_of(it.setting, "foretold")) for it in found]
    return [foretold(found, drawn)] if found else []


SECTIONS: tuple[Make, ...] = (_saving, _parts, ranks, room, _throughput, _foretold)
