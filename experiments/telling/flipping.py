"""What would flip the outcome: maps of who wins where, variants two by two, and the same devices used otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.telling.crossing import ABOUT, BY_TIMES, Map, maps, turning
from experiments.telling.decision import Decision
from experiments.telling.doubt import Doubts
from experiments.telling.duel import duels
from experiments.telling.families import related
from experiments.telling.figures.canvas import Drawn
from experiments.telling.focus import Focus
from experiments.telling.frame import distinct
from experiments.telling.needs import Needs
from experiments.telling.plots import draw_maps
from experiments.telling.rule import Rule
from experiments.telling.section import Section
from experiments.telling.spread import laid_out, spread_blocks, spread_said


@dataclass(frozen=True)
class Flipping:
    """The report's section, the figures in it, and per decision what other uses of its devices would gain."""

    section: Section | None
    figures: Sequence[Drawn | None]
    spreads: Sequence[str | None]


def flipping(
    focus: Focus, decisions: Sequence[Decision], rule: Rule, others: Mapping[str, int], doubts: Doubts, folder: Path
) -> Flipping:
    """Found from all rows, and drawn into ``folder``."""
    found = _maps(focus, rule, others, doubts)
    figures = draw_maps(focus.pages, found, folder)
    laid = [laid_out(decision, focus.pages, rule, others, doubts) for decision in decisions]
    against = [_against(it, focus, rule, doubts) for it in found]
    section = turning(found, figures, against, spread_blocks(laid), BY_TIMES if rule.asks else ABOUT)
    return Flipping(section, figures, [spread_said(it, one) for it, one in zip(laid, decisions, strict=True)])


def _against(it: Map, focus: Focus, rule: Rule, doubts: Doubts) -> list[str]:
    """A map's variants two by two; only where someone said what the model has."""
    if rule.question.own is None:
        return []
    return duels([page for page in focus.pages if related(page, it.setting)], rule, doubts)


def _maps(focus: Focus, rule: Rule, others: Mapping[str, int], doubts: Doubts) -> list[Map]:
    """Of a question's own machine and model first. Its needs are of its own tp and batch, so they are not held here."""
    everywhere = distinct(label for page in focus.pages for label in page.variants if rule.question.asks(label))
    by = replace(rule, needs=Needs()) if rule.asks else rule
    return [it for some in focus.parts for it in maps(some, by, everywhere, others, doubts)]
