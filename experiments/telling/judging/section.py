"""Rows of quality inside the report of timed rows: what conversions cost a small model, and what that does not say."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.scored import Scored
from experiments.telling.evidence import Evidence
from experiments.telling.figures.canvas import Drawn, look
from experiments.telling.judging.figure import draw
from experiments.telling.judging.numbers import Judged, comparable, judged, original
from experiments.telling.judging.page import STEM, best, how, scored_on
from experiments.telling.judging.table import ratio, scores
from experiments.telling.section import Block, Section
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING, percent

HEADING = "Quality, measured on a small model"
POINTER = f'What conversions cost a small model, measured here, is under "{HEADING}".'
NO_RULE = "No part of the outcome: no variant is chosen or ruled out by it."


@dataclass(frozen=True)
class Beside:
    """What stands at the outcome: a line per variant, and whose numbers these are. ``section`` has all of them."""

    text: str
    table: Table
    section: Section
    figure: Drawn


def beside(rows: Sequence[Scored], variants: Sequence[str], papers: Sequence[Evidence], folder: Path) -> Beside | None:
    """Quality of the report's variants, which are all told in the order given; None where there are no rows.

    ``papers``: what is published of these variants. The figure goes into ``folder``.
    """
    if not rows:
        return None
    mine = comparable(rows)
    base, found = original(mine), judged(mine)
    kept = [it for it in found if it.before.attention in variants or it.before is base]
    with look():
        drawn = draw(kept, base, folder, STEM)
    about = f"Measured here on another model than this report's. {scored_on(base)} {NO_RULE} {best(kept)}"
    section = Section(HEADING, None, [Block(about, scores(kept, base), how(kept, base), drawn)])
    header = ("variant", f"measured: {base.checkpoint} as it, perplexity over the original's [95 %]", "published")
    lines = tuple((name, _measured(name, kept, base), _published(name, papers)) for name in variants)
    return Beside(_whose(kept, base), Table(header, lines), section, drawn)


def _whose(found: Sequence[Judged], base: Scored) -> str:
    trained = [it.after for it in found if it.after]
    after = (
        f", after {trained[0].steps} steps per layer of distillation on {trained[0].training_tokens:,} tokens"
        if trained
        else ", as converted, without training"
    )
    return (
        f"Quality beside the outcome, and not part of it. Measured: {base.checkpoint}, {base.layers} layers, converted"
        f"{after}; not this report's model. Published: other models, as papers print it."
    )


def _measured(variant: str, found: Sequence[Judged], base: Scored) -> str:
    """``1.4x [1.3, 1.5] with 50 % of the bytes``, for every size that was made of it."""
    mine = [it for it in found if it.before.attention == variant]
    return "; ".join(_said(it, base) for it in mine) or NOTHING


def _said(it: Judged, base: Scored) -> str:
    if it.before is base:
        return "1x: it is the original"
    exact = ", exact" if it.before.exact else "" if it.after else ", not trained"
    share = percent(it.last.bytes_per_token / base.bytes_per_token)
    return f"{ratio(it.last, base)} with {share} of the original's bytes{exact}"


def _published(variant: str, papers: Collection[Evidence]) -> str:
    said = [
        f"{finding.name} {it.metrics[0].said(finding)} ({it.metrics[0].name}; {it.title})"
        for it in papers
        for finding in it.findings
        if finding.variant == variant
    ]
    return "; ".join(said) or NOTHING
