"""Cache on each device over tensor parallelism: what is split falls, a latent is whole everywhere."""

from collections.abc import Sequence

from experiments.telling.counted import Shelf, shelf
from experiments.telling.families import together
from experiments.telling.figures.sizes import Sheet, draw_devices, falls_below
from experiments.telling.scene import Scene
from experiments.telling.section import Block, Section
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING, binary_size
from variants.contract.tokens import format_tokens

HEADING = "Cache on each device over tensor parallelism"
ABOUT = (
    "Counted from each variant's layout on one rank, not read from rows: key and value "
    "heads are split while there are any to split and then repeated, a latent is whole on every rank."
)


def ranks(scene: Scene) -> list[Section]:
    """One block per model and cache dtype that the planner knows; no section without."""
    groups = together(scene.pages, ("model", "kv_dtype"))
    shelves = [it for it in (shelf(pages, scene) for pages in groups) if it]
    blocks = [_block(scene, it, n if len(shelves) > 1 else 0) for n, it in enumerate(shelves, start=1)]
    return [Section(HEADING, None, blocks)] if blocks else []


def _block(scene: Scene, it: Shelf, n: int) -> Block:
    context, points = it.contexts[-1], _points(it)
    sheet = Sheet(
        stem=f"devices-{n}" if n else "devices",
        heading=HEADING,
        title=f"{it.name}, all {it.layers} layers, {format_tokens(context)} tokens",
        panel="heads are split and then repeated; a latent is whole",
        label="bytes per sequence and device",
        points=points,
        gaps="tp does not divide the query heads",
        notes=("Logical bytes: padding not counted.", *it.notes),
        looks=scene.looks,
        versus=True,
    )
    turns = [f"{fall.said}." for fall in falls_below(points)]
    about = ABOUT if n < 2 else f"{it.name}:"
    return Block(about, _table(points), [*turns, *it.notes], draw_devices(sheet, scene.folder))


def _points(it: Shelf) -> dict[str, list[tuple[int, float | None]]]:
    return {one.label: [(tp, one.bytes(tp, it.contexts[-1])) for tp in sorted(one.ranks)] for one in it.variants}


def _table(points: dict[str, list[tuple[int, float | None]]]) -> Table:
    tps: Sequence[int] = [tp for tp, _ in next(iter(points.values()))]
    lines = ((name, *(NOTHING if y is None else binary_size(y) for _, y in line)) for name, line in points.items())
    return Table(("variant", *(f"tp {tp}" for tp in tps)), tuple(lines))
