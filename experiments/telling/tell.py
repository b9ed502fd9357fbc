"""From a folder of records to a folder with a report: the whole wing in one call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.records import Loaded, load
from experiments.scored import Scored
from experiments.telling.aside import aside_table
from experiments.telling.decision import Decision, decide_all
from experiments.telling.doubt import Doubts
from experiments.telling.evidence import Evidence
from experiments.telling.figures.canvas import Drawn
from experiments.telling.flipping import flipping
from experiments.telling.focus import Focus
from experiments.telling.folder import FIGURES, HTML, PAGE, report_folder
from experiments.telling.frame import Tidy, distinct, family_order, plain, tidy
from experiments.telling.gallery import sections as gallery
from experiments.telling.html.render import render_html
from experiments.telling.judging import section as judging
from experiments.telling.page import Facts, render
from experiments.telling.plots import draw_all, draw_evidence, draw_supports
from experiments.telling.published import of_variants, published
from experiments.telling.rule import Rule
from experiments.telling.scene import Foretell, Scene, nothing
from experiments.telling.setting import settings
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
    layers by model. ``planner``: what the page's sliders and figures of what was not run compute with, for the models
    named in the records. ``foretell``: what the planner says of measured rows. ``doubts``: how far predicted rows are
    off. ``scores``: rows of quality, of a small model that stands in for none.
    """

    evidence: Sequence[Evidence] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    planner: Planner = lambda models: None
    foretell: Foretell = nothing
    doubts: Doubts = field(default_factory=dict)
    scores: Sequence[Scored] = ()


ALONE = Beside()


def tell(runs: Path, out: Path, rule: Rule, command: str, beside: Beside = ALONE) -> Told:
    """Read the records below ``runs`` and write the report into ``out``, replacing an earlier one.

    Raises FileNotFoundError or ValueError, before anything is written, if there are no readable records, the rule asks
    for a batch that was not run, or ``out`` holds something else than a report.
    """
    told = tidy(_loaded(runs), runs)
    pages = settings(told.table)
    decisions = decide_all(pages, rule, beside.others, beside.doubts)
    plan = beside.planner(distinct(plain(told.table["model"])))
    with report_folder(out) as folder:
        focus = Focus.of(pages, decisions, rule)
        scene = Scene(pages, rule, folder / FIGURES, beside.others, plan, beside.foretell, focus.aside)
        facts, drawn = _facts(told, decisions, command, beside, focus, scene)
        page = render(facts)
        html = render_html(facts, page, folder / FIGURES, plan)
        for name, text in ((PAGE, page), (HTML, html)):
            # a path that the locale could not decode holds surrogates, which UTF-8 has no bytes for
            (folder / name).write_text(text, encoding="utf-8", errors="replace", newline="\n")
    saved = tuple(out / FIGURES / f"{figure.stem}.png" for figure in drawn)
    return Told(out / PAGE, saved, summary_table(decisions), told.warnings)


def _facts(
    told: Tidy, decisions: Sequence[Decision], command: str, beside: Beside, focus: Focus, scene: Scene
) -> tuple[Facts, list[Drawn]]:
    """All that the pages tell, and every figure, which are drawn here."""
    pages, rule, folder = scene.pages, scene.rule, scene.folder
    figures = draw_all(pages, folder, focus.silent)
    supports = [support(decision, rule) for decision in decisions]
    matrices = draw_supports(supports, folder)
    sections = gallery(scene)
    papers = of_variants(beside.evidence, distinct(plain(told.table["attention"])))
    placed = draw_evidence(pages, papers, folder)
    variants = sorted(distinct(plain(told.table["attention"])), key=family_order)
    quality = judging.beside(beside.scores, variants, papers, folder)
    flips = flipping(focus, decisions, rule, beside.others, beside.doubts, folder)
    facts = Facts(
        told,
        pages,
        decisions,
        figures,
        supports,
        matrices,
        rule,
        command,
        sections,
        published(papers, placed),
        flips.section,
        aside_table(focus.numbered, [*focus.about, *focus.near], rule, beside.others, beside.doubts),
        flips.spreads,
        focus.silent,
        beside.doubts,
        quality,
    )
    inside = (block.figure for section in sections for block in section.blocks)
    every = [figure for page in figures for figure in page]
    return facts, [
        *every,
        *filter(None, (*matrices, *inside, placed, quality.figure if quality else None, *flips.figures)),
    ]


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
