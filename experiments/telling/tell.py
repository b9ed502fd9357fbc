"""From a folder of records to a folder with a report: the whole wing in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.records import Loaded, load
from experiments.telling.aside import aside_table, asides, family, neighbours
from experiments.telling.crossing import ABOUT, BY_TIMES, Map, maps, turning
from experiments.telling.decision import decide_all
from experiments.telling.doubt import Doubts
from experiments.telling.duel import duels
from experiments.telling.evidence import Evidence
from experiments.telling.folder import FIGURES, HTML, PAGE, report_folder
from experiments.telling.frame import distinct, plain, tidy
from experiments.telling.html.render import render_html
from experiments.telling.needs import Needs
from experiments.telling.page import Facts, render
from experiments.telling.plots import draw_all, draw_evidence, draw_maps, draw_sections, draw_supports
from experiments.telling.published import of_variants, published
from experiments.telling.question import Question
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting, settings
from experiments.telling.spread import laid_out, spread_blocks, spread_said
from experiments.telling.summary import summary_table
from experiments.telling.support import support

Planner = Callable[[Sequence[str]], dict[str, Any] | None]
FIRST = "run `python -m experiments.run study=quick` first"


@dataclass(frozen=True)
class Told:
    """What a report came to: its page, its figures, and the summary to print."""

    page: Path
    figures: tuple[Path, ...]
    summary: str
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Beside:
    """What a report knows beside its rows.

    ``evidence``: what papers report; said of the variants that have rows. ``others``: weights outside of the attention
    layers by model. ``planner``: what the page's sliders compute with, for the models named in the records.
    ``doubts``: how far predicted rows are off.
    """

    evidence: Sequence[Evidence] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    planner: Planner = lambda models: None
    doubts: Doubts = field(default_factory=dict)


ALONE = Beside()


def tell(runs: Path, out: Path, rule: Rule, command: str, beside: Beside = ALONE) -> Told:
    """Read the records below ``runs`` and write the report into ``out``, replacing an earlier one.

    Raises FileNotFoundError or ValueError, before anything is written, if there are no readable records, the rule asks
    for a batch that was not run, or ``out`` holds something else than a report.
    """
    told = tidy(_loaded(runs), runs)
    pages = settings(told.table)
    decisions = decide_all(pages, rule, beside.others, beside.doubts)
    papers = of_variants(beside.evidence, distinct(plain(told.table["attention"])))
    about = [place.setting for decision in decisions for place in decision.places]
    asked = rule.question != Question()
    said_of = BY_TIMES if asked else ABOUT
    near = neighbours(pages, about) if asked else []
    silent = frozenset(n for n, page in enumerate(pages, start=1) if any(page is it for it in near))
    beyond = asides(pages, about) if asked else []
    numbered = {n: page for n, page in enumerate(pages, start=1) if any(page is it for it in beyond)}
    with report_folder(out) as folder:
        figures = draw_all(pages, folder / FIGURES, silent)
        matrices = [support(decision, rule) for decision in decisions]
        drawn = draw_supports(matrices, folder / FIGURES)
        sections = draw_sections(pages, folder / FIGURES)
        placed = draw_evidence(pages, papers, folder / FIGURES)
        found = _maps(pages, rule, beside, beyond)
        crossed = draw_maps(pages, found, folder / FIGURES)
        laid = [laid_out(decision, pages, rule, beside.others, beside.doubts) for decision in decisions]
        spreads = [spread_said(it, decision) for it, decision in zip(laid, decisions, strict=True)]
        flipped = turning(found, crossed, _against(found, pages, rule, beside), spread_blocks(laid), said_of)
        aside = aside_table(numbered, [*about, *near], rule, beside.others, beside.doubts)
        said = sections, published(papers, placed), flipped, aside, spreads, silent, beside.doubts
        facts = Facts(told, pages, decisions, figures, matrices, drawn, rule, command, *said)
        page = render(facts)
        html = render_html(facts, page, folder / FIGURES, beside.planner(distinct(plain(told.table["model"]))))
        for name, text in ((PAGE, page), (HTML, html)):
            # a path that the locale could not decode holds surrogates, which UTF-8 has no bytes for
            (folder / name).write_text(text, encoding="utf-8", errors="replace", newline="\n")
    inside = (block.figure for section in sections for block in section.blocks)
    every = [*(figure for page in figures for figure in page), *filter(None, (*drawn, *inside, placed, *crossed))]
    saved = tuple(out / FIGURES / f"{figure.stem}.png" for figure in every)
    return Told(out / PAGE, saved, summary_table(decisions), told.warnings)


def _maps(pages: Sequence[Setting], rule: Rule, beside: Beside, beyond: Sequence[Setting]) -> list[Map]:
    """Of a question's own machine and model first. Its needs are of its own tp and batch, so they are not held here."""
    everywhere = distinct(label for page in pages for label in page.variants if rule.question.asks(label))
    by = rule if rule.question == Question() else replace(rule, needs=Needs())
    mine = [page for page in pages if not any(page is it for it in beyond)]
    return [it for some in (mine, beyond) for it in maps(some, by, everywhere, beside.others, beside.doubts)]


def _against(found: Sequence[Map], pages: Sequence[Setting], rule: Rule, beside: Beside) -> list[list[str]]:
    """Per map, its variants two by two; only where someone said what the model has."""
    if rule.question.own is None:
        return [[] for _ in found]
    return [duels(family(it.setting, pages), rule, beside.doubts) for it in found]


def _loaded(runs: Path) -> Loaded:
    if not runs.is_dir():
        raise FileNotFoundError(f"runs must be the folder of a run; there is no folder {runs}: {FIRST}")
    try:
        loaded = load(runs)
    except FileNotFoundError:
        raise FileNotFoundError(f"runs must have records.jsonl files below it; {runs} has none: {FIRST}") from None
    if not loaded.rows:
        first = f"; the first: {loaded.warnings[0]}" if loaded.warnings else ""
        raise ValueError(f"runs must hold at least one readable record; {runs} has none{first}")
    return loaded
