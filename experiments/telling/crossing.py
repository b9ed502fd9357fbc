"""What would flip the outcome: the rule applied at every context, batch and number of ranks that was run.

Two points are put beside each other only where nothing else differs: one machine, model, dtype, storage and backend.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from experiments.telling.candidates import NO_DOUBTS
from experiments.telling.decision import Decision, decide
from experiments.telling.doubt import Doubts
from experiments.telling.families import families
from experiments.telling.figures.canvas import Drawn
from experiments.telling.frame import distinct
from experiments.telling.mix import Mix
from experiments.telling.rule import Rule
from experiments.telling.section import Block, Section
from experiments.telling.setting import Setting
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING, times
from variants.contract.tokens import format_tokens

AXES = ("context", "batch", "tp")
HEADING = "What would flip it"
ABOUT = "The same rule at every place that was run; nothing between two places is claimed."
BY_TIMES = (
    "The same rule at every place that was run, by times and bytes alone: the needs are those of the question's own tp "
    "and batch. Fewer ranks are groups of data-parallel attention. Nothing between two places is claimed."
)
LEGIBLE = 16  # contexts, batches or numbers of ranks; a map of more is none


@dataclass(frozen=True)
class Cell:
    """The outcome at one place: the variants named, by how much the first is faster, what bounds it, and the rows.

    ``lead`` is the time of the next that is no winner over the slowest winner's; None where there is no other.
    """

    at: Mapping[str, int]
    winners: tuple[str, ...]
    lead: float | None
    bound: str | None
    keys: tuple[str, ...]

    @property
    def said(self) -> str:
        """``mla (memory-bound, 1.86x ahead)``."""
        about = [f"{self.bound}-bound"] if self.bound else []
        about += [f"{times(self.lead)} ahead"] if self.lead and self.lead > 1 else []
        return " or ".join(self.winners) + (f" ({', '.join(about)})" if about else "")


@dataclass(frozen=True)
class Map:
    """All places of what differs in context, batch and tp alone."""

    setting: Setting
    cells: tuple[Cell, ...]

    @property
    def title(self) -> str:
        """The settings', which are one but for batches and ranks."""
        batches, said = self.values("batch"), self.setting.title
        if len(batches) > 1:
            said = said.replace(f"batch {self.setting.values['batch']}", f"batch {batches[0]} to {batches[-1]}")
        return said

    @property
    def predicted(self) -> bool:
        """Whether these outcomes are of rows that were computed, not measured."""
        return self.setting.predicted

    @property
    def legible(self) -> bool:
        """Whether a picture of all places can be read."""
        return all(len(self.values(axis)) <= LEGIBLE for axis in AXES)

    def values(self, axis: str) -> list[int]:
        """What was run along an axis."""
        return distinct(cell.at[axis] for cell in self.cells)


def maps(
    pages: Sequence[Setting],
    rule: Rule,
    everywhere: Sequence[str],
    others: Mapping[str, int],
    doubts: Doubts = NO_DOUBTS,
) -> list[Map]:
    """One per family of settings that was run at two places at least."""
    found = []
    for family in families(pages, AXES):
        cells = [cell for page in family for cell in _cells(page, rule, everywhere, others, doubts)]
        if len(cells) > 1:
            found.append(Map(family[0], tuple(cells)))
    return found


def turning(
    found: Sequence[Map],
    figures: Sequence[Drawn | None],
    against: Sequence[Sequence[str]] = (),
    further: Sequence[Block] = (),
    about: str = ABOUT,
) -> Section | None:
    """The report's section of maps that are drawn, or, being too large, only told of; None without anything to tell.

    ``against``: sentences of two variants against each other, per map; ``further`` blocks come first.
    """
    duels = against or [()] * len(found)
    blocks = [
        Block(about if n == 0 else f"{it.title}:", places(it) if drawn else None, [*flips(it), *said], drawn)
        for n, (it, drawn, said) in enumerate(zip(found, figures, duels, strict=True))
    ]
    return Section(HEADING, None, [*further, *blocks]) if blocks or further else None


def flips(it: Map) -> list[str]:
    """Along each axis, all else equal: where the outcome turns, or that it never does; each with the rows."""
    return [said for axis in AXES for said in _along(it, axis)]


def places(it: Map) -> Table:
    """A line per place: what the map shows, in numbers."""
    lines = (
        (
            *(_value(axis, cell.at[axis]) for axis in AXES),
            " or ".join(cell.winners),
            times(cell.lead) if cell.lead else NOTHING,
            cell.bound or NOTHING,
            ", ".join(cell.keys),
        )
        for cell in it.cells
    )
    return Table((*AXES, "outcome", "the next takes", "bound", "rows"), tuple(lines))


def _along(it: Map, axis: str) -> list[str]:
    """Turns of the same kind in one sentence, which tells of the place where the lead is least."""
    lines: dict[tuple[int, ...], list[Cell]] = {}
    for cell in sorted(it.cells, key=lambda cell: cell.at[axis]):
        lines.setdefault(tuple(cell.at[other] for other in AXES if other != axis), []).append(cell)
    runs = [line for line in lines.values() if len(line) > 1]
    turns: dict[tuple[object, ...], list[tuple[Cell, Cell]]] = {}
    for a, b in (pair for line in runs for pair in pairwise(line) if pair[0].winners != pair[1].winners):
        turns.setdefault((a.at[axis], b.at[axis], a.winners, b.winners), []).append((a, b))
    still = [line for line in runs if len({cell.winners for cell in line}) == 1]
    return [*(_turn(it, axis, pairs) for pairs in turns.values()), *([_still(it, axis, still)] if still else [])]


def _turn(it: Map, axis: str, pairs: Sequence[tuple[Cell, Cell]]) -> str:
    a, b = min(pairs, key=lambda pair: min(pair[0].lead or 1.0, pair[1].lead or 1.0))
    several = f" at {len(pairs)} places; closest" if len(pairs) > 1 else ""
    where = f"{several}{_place(it, axis, a)}"
    return (
        f"Between {axis} {_value(axis, a.at[axis])} and {_value(axis, b.at[axis])} the outcome turns{where}: "
        f"from {a.said} to {b.said} (rows {', '.join(dict.fromkeys((*a.keys, *b.keys)))})."
    )


def _still(it: Map, axis: str, lines: Sequence[Sequence[Cell]]) -> str:
    line = min(lines, key=lambda line: min(cell.lead or 1.0 for cell in line))
    first, last = (_value(axis, cell.at[axis]) for cell in (line[0], line[-1]))
    least = min(line, key=lambda cell: cell.lead or 1.0)
    several = f" at {len(lines)} places; closest" if len(lines) > 1 else ""
    return (
        f"From {axis} {first} to {last} nothing turns{several}{_place(it, axis, least)}: {least.said} "
        f"at {axis} {_value(axis, least.at[axis])} (rows {', '.join(least.keys)})."
    )


def _place(it: Map, axis: str, cell: Cell) -> str:
    """`` at batch 1, tp 8``: what else there are several of."""
    others = [
        f"{other} {_value(other, cell.at[other])}" for other in AXES if other != axis and len(it.values(other)) > 1
    ]
    return f" at {', '.join(others)}" if others else ""


def _cells(
    page: Setting, rule: Rule, everywhere: Sequence[str], others: Mapping[str, int], doubts: Doubts = NO_DOUBTS
) -> list[Cell]:
    place = {name: page.values[name] for name in AXES[1:]}
    if None in place.values():
        return []
    bounds = {row["key"]: row["bound"] for row in page.records}
    made = []
    for context in page.contexts(rule.scope):
        decision = decide([page], replace(rule, context=Mix.of(context), batch=None), everywhere, others, doubts)
        if decision.winners:
            made.append(_cell({"context": context, **place}, decision, bounds))
    return made


def _cell(at: Mapping[str, int], decision: Decision, bounds: Mapping[str, Any]) -> Cell:
    best = [c for c in decision.candidates if c.variant in decision.winners]
    rest = sorted((c for c in decision.candidates if c.variant not in decision.winners), key=lambda c: c.us)
    lead = rest[0].us / max(c.us for c in best) if rest else None
    bound = {bounds[c.key] for c in best}
    keys = tuple(c.key for c in (*best, *rest[:1]))
    return Cell(at, decision.winners, lead, bound.pop() if len(bound) == 1 else None, keys)


def _value(axis: str, value: int) -> str:
    return format_tokens(value) if axis == "context" else str(value)
