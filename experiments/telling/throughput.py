"""Tokens per second over the batch: the attention layers as their rows say, and the whole model, partly predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.telling.candidates import at_point, latest, point_rows, scope_rows
from experiments.telling.families import families
from experiments.telling.figures.canvas import Drawn
from experiments.telling.frame import distinct, family_order
from experiments.telling.places import Place
from experiments.telling.room import Room, room_of
from experiments.telling.scene import Scene
from experiments.telling.section import Block, Section
from experiments.telling.setting import Setting
from experiments.telling.tables import Row, Table
from experiments.telling.whole import Whole, wholes
from experiments.telling.words import NOTHING, number
from variants.contract.tokens import format_tokens

HEADING = "Tokens per second over the batch"
ABOUT = (
    "Tokens per second and device at {context} cached tokens: batch / (layers x step), as if the attention layers were "
    "the whole model, and with what comes beside them, which no row holds{how}."
)


@dataclass(frozen=True)
class Served:
    """A variant at one batch: tokens per second and device of its attention layers, with the ends of its interval.

    ``whole``: the same of the whole model; None where what comes beside the layers is not known. ``fits``: whether all
    layers' caches do, where the memory for them is known.
    """

    variant: str
    batch: int
    alone: float
    interval: tuple[float, float] | None
    whole: float | None
    whole_interval: tuple[float, float] | None
    other_ms: float | None
    fits: bool
    samples: int | None
    key: str


@dataclass(frozen=True)
class Serving:
    """One family of settings that differ in batch alone. ``absent``: (variant, batch) tried without a time.

    ``room``: what caches may take, if known. ``given_ms``: what comes beside the attention layers, if it was given.
    """

    setting: Setting
    context: int
    batches: tuple[int, ...]
    served: tuple[Served, ...]
    absent: tuple[tuple[str, int], ...]
    room: Room | None
    given_ms: float | None

    @property
    def title(self) -> str:
        """The settings', which are one but for the batch."""
        own = f"batch {self.setting.values['batch']}"
        return self.setting.title.replace(own, f"batch {self.batches[0]} to {self.batches[-1]}")

    @property
    def predicted(self) -> bool:
        """Whether the rows were computed, not measured."""
        return self.setting.predicted

    @property
    def variants(self) -> list[str]:
        """Every variant that has a point or was tried."""
        return sorted({*(s.variant for s in self.served), *(name for name, _ in self.absent)}, key=family_order)


def servings(scene: Scene) -> list[Serving]:
    """Families of at least two batches with times at one context."""
    made = (_serving(scene, family) for family in families(scene.shown, ["batch"]) if len(family) > 1)
    return [it for it in made if it]


def throughput(found: Sequence[Serving], figures: Sequence[Drawn]) -> Section:
    """One block per family."""
    blocks = []
    for n, (it, drawn) in enumerate(zip(found, figures, strict=True)):
        at = f"{it.title}, {format_tokens(it.context)} cached tokens"
        about = ABOUT.format(context=format_tokens(it.context), how=_how(it))
        blocks.append(Block(f"{at}:" if n else about, _table(it), _unfit(it), drawn))
    return Section(HEADING, None, blocks)


def _how(it: Serving) -> str:
    if it.given_ms is None:
        return ": PREDICTED, reading the other weights at the read ceiling"
    return f": {it.given_ms:g} ms, as given"


def _unfit(it: Serving) -> list[str]:
    """Who is timed, one layer at a time, at a batch whose caches the device could not hold for all layers."""
    large: dict[str, list[int]] = {}
    for one in it.served:
        if not one.fits:
            large.setdefault(one.variant, []).append(one.batch)
    said = ", ".join(f"{name} at batch {', '.join(map(str, large[name]))}" for name in sorted(large, key=family_order))
    return [f"Does not fit ({it.room.said}): {said}."] if it.room and large else []


def _serving(scene: Scene, family: Sequence[Setting]) -> Serving | None:
    pages = sorted((page for page in family if page.values["batch"]), key=lambda page: int(page.values["batch"]))
    context = _context(scene, pages)
    if context is None:
        return None
    served = [one for page in pages for one in _served(scene, page, context)]
    batches = distinct(one.batch for one in served)
    if len(batches) < 2:
        return None
    have = {(one.variant, one.batch) for one in served}
    tried = [
        (row["label"], int(page.values["batch"]))
        for page in pages
        for row in scope_rows(page, "step")
        if row["context"] == context
    ]
    absent = tuple(dict.fromkeys(at for at in tried if at not in have))
    every = tuple(sorted({*batches, *(batch for _, batch in absent)}))
    space, given = room_of(scene, pages[0]), scene.rule.needs.other_ms
    return Serving(pages[0], context, every, tuple(served), absent, space, given)


def _context(scene: Scene, pages: Sequence[Setting]) -> int | None:
    """The rule's, of a mix the one with the largest share; else where most batches have a time, then the longest."""
    if scene.rule.context is not None:
        return max(scene.rule.context.shares, key=lambda part: (part[1], part[0]))[0]
    counts: dict[int, int] = {}
    for page in pages:
        for context in {row["context"] for row in scope_rows(page, "step") if row["status"] == "ok"}:
            counts[context] = counts.get(context, 0) + 1
    return max(counts, key=lambda context: (counts[context], context), default=None)


def _served(scene: Scene, page: Setting, context: int) -> list[Served]:
    temperature, found = at_point(page, "step", context)
    rows = {row["label"]: row for row in latest(point_rows(page, "step", context), temperature)}
    place, rule = Place(page, context, 1.0), scene.rule
    made = wholes([place], found, temperature, rule.needs, scene.others, rule.question.own)
    space = room_of(scene, page)
    return [_one(whole, rows[whole.variant], space) for whole in made]


def _one(it: Whole, row: Row, space: Room | None) -> Served:
    layers = it.layers_ms / row["latency_us_p50"]  # ms of all layers per us of one
    ends = (row["latency_us_ci_high"], row["latency_us_ci_low"])  # the longest time is the lowest rate
    known = None not in ends

    def rate(ms: float) -> float:
        return 1e3 * it.batch / ms / it.ranks

    def interval(beside: float) -> tuple[float, float] | None:
        return (rate(layers * ends[0] + beside), rate(layers * ends[1] + beside)) if known else None

    other = it.other_ms
    whole = None if other is None else rate(it.ms)
    return Served(
        *(it.variant, it.batch, rate(it.layers_ms), interval(0.0), whole),
        *(None if other is None else interval(other), other),
        *(space is None or it.bytes is None or it.bytes <= space.bytes, row["samples"], row["key"]),
    )


def _table(it: Serving) -> Table:
    header = ("variant", "batch", "attention layers, tokens/s", "other weights, ms", "whole model, tokens/s", "row")
    order = sorted(it.served, key=lambda one: (family_order(one.variant), one.batch))
    lines = (
        (
            *(one.variant, str(one.batch), _said(one.alone, one.interval), number(one.other_ms)),
            *(NOTHING if one.whole is None else _said(one.whole, one.whole_interval), one.key),
        )
        for one in order
    )
    return Table(header, tuple(lines))


def _said(value: float, ends: tuple[float, float] | None) -> str:
    return number(value) + (f" [{number(ends[0])}, {number(ends[1])}]" if ends else "")
