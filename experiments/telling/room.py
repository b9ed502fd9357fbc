"""How many sequences fit on the devices of one copy of the model, over their length."""

from dataclasses import dataclass

from experiments.telling.counted import Shelf, shelf
from experiments.telling.families import together
from experiments.telling.figures.sizes import Sheet, draw_capacity
from experiments.telling.scene import Scene
from experiments.telling.section import Block, Section
from experiments.telling.setting import Setting
from experiments.telling.tables import Table
from experiments.telling.words import binary_size, count, number
from variants.contract.tokens import format_tokens

HEADING = "Sequences that fit over context"
SHORTEST, LONGEST = 1024, 131_072  # tokens that the figure reaches over at least
ABOUT = "Counted: bytes of one device that caches may take, over the bytes of one sequence there; padding not counted."


@dataclass(frozen=True)
class Room:
    """``bytes`` of one device for caches, and where that number is from; 0 or less where weights leave nothing."""

    bytes: int
    said: str


def room(scene: Scene) -> list[Section]:
    """One block per model, cache dtype, device and tp whose memory is known: asked for, or in the device's profile."""
    made: list[tuple[Shelf, Room, Setting]] = []
    for pages in together(scene.shown, ("model", "kv_dtype", "device", "tp")):
        it, space = shelf(pages, scene), room_of(scene, pages[0])
        if it and space and not any((it, space) == (a, b) for a, b, _ in made):
            made.append((it, space, pages[0]))
    blocks = [_block(scene, *one, n if len(made) > 1 else 0) for n, one in enumerate(made, start=1)]
    return [Section(HEADING, None, blocks)] if blocks else []


def room_of(scene: Scene, page: Setting) -> Room | None:
    """What was asked for, else the device's memory without its share of the weights; None where neither is known."""
    tp, asked = page.values["tp"] or 1, scene.rule.needs.memory
    if asked is not None:
        return Room(asked, f"{_gb(asked)} of each device for caches, as asked for, tp {tp}")
    profile = scene.known("devices", page.values["device"])
    model = scene.known("models", page.values["model"])
    if profile is None or model is None or model["weight_bytes"] is None:
        return None
    own = -(-int(model["weight_bytes"]) // tp)
    left = f"{_gb(profile['memory_bytes'])} less {_gb(own)} of weights, bf16, nothing reserved"
    return Room(int(profile["memory_bytes"]) - own, f"{profile['name']}, tp {tp}: {left}")


def _block(scene: Scene, it: Shelf, space: Room, page: Setting, n: int) -> Block:
    about = ABOUT if n < 2 else f"{it.name}:"
    points = _points(it, space, page.values["tp"] or 1)
    if not any(y for line in points.values() for _, y in line):
        return Block(f"{about} Nothing fits: {space.said}.", notes=it.notes)
    sheet = Sheet(
        stem=f"capacity-{n}" if n else "capacity",
        heading=HEADING,
        title=f"{it.name}, all {it.layers} layers. {space.said}",
        panel="all sequences at this length",
        label="sequences on the devices of one copy",
        points=points,
        gaps="not one sequence fits",
        notes=("Logical bytes; the weights are taken to stay the same with other attention.", *it.notes),
        looks=scene.looks,
    )
    return Block(about, _table(points), [f"Memory: {space.said}.", *it.notes], draw_capacity(sheet, scene.folder))


def _points(it: Shelf, space: Room, tp: int) -> dict[str, list[tuple[int, float | None]]]:
    longest = max(LONGEST, *it.contexts)
    powers = {1 << n for n in range(SHORTEST.bit_length() - 1, longest.bit_length())}
    contexts = sorted(powers | {context for context in it.contexts if context >= SHORTEST})
    sizes = {one.label: [(context, one.bytes(tp, context)) for context in contexts] for one in it.variants}
    return {
        label: [(context, (max(space.bytes, 0) // size or None) if size else None) for context, size in line]
        for label, line in sizes.items()
    }


def _table(points: dict[str, list[tuple[int, float | None]]]) -> Table:
    """At powers of two; what lies between is in the figure."""
    shown = [context for context, _ in next(iter(points.values())) if context.bit_count() == 1]
    lines = ((name, *(count(y or 0) for context, y in line if context in shown)) for name, line in points.items())
    return Table(("variant", *map(format_tokens, shown)), tuple(lines))


def _gb(size: float) -> str:
    """Decimal, as datasheets and ``memory=`` have it; small ones to the byte's own unit."""
    return f"{number(size / 1e9, 4).rstrip('0').rstrip('.')} GB" if size >= 1e9 else binary_size(size)
