"""The report's section of published evidence: per paper a table, nothing averaged, nothing called a measurement."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from experiments.telling.evidence import Evidence, Finding, front
from experiments.telling.figures.canvas import Drawn
from experiments.telling.section import Block, Section
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING, count

HEADING = "Published evidence"
ABOUT = (
    "What papers report of quality, quoted: no number below was measured here, and none is part of the outcome. "
    "A table compares models inside one paper only; papers differ in size, data and tasks, so that nothing is averaged "
    "or ranked across them. Bytes are one layer's, counted here for the paper's own heads where those are known."
)
POINTER = f'What papers report of it is under "{HEADING}".'


def of_variants(evidence: Iterable[Evidence], variants: Collection[str]) -> list[Evidence]:
    """The papers that compare at least two of the report's variants, with those alone."""
    mine = (replace(it, findings=tuple(f for f in it.findings if f.variant in variants)) for it in evidence)
    return [it for it in mine if len(it.findings) > 1]


def published(evidence: Sequence[Evidence], figure: Drawn | None) -> Section | None:
    """The section; None without evidence."""
    if not evidence:
        return None
    return Section(HEADING, None, [Block(ABOUT, figure=figure), *(_block(it) for it in evidence)])


def _block(it: Evidence) -> Block:
    directions = tuple(f"{metric.name}, {metric.better} is better" for metric in it.metrics)
    header = ("variant", "in the paper", "cache B/token/layer", *directions)
    notes = [f"Setting: {it.setting}.", f"Source: {it.source} ({it.date}). Checked: {it.checked}."]
    best = (
        [f"On the Pareto front of bytes and {it.metrics[0].name}: {', '.join(f.name for f in front(it))}."]
        if it.shape
        else []
    )
    shape = f"Heads: {it.shape}." if it.shape else "Heads: not given, so no bytes and no point in the figure."
    return Block(f"{it.title}:", Table(header, tuple(_row(it, f) for f in it.findings)), [*best, *notes, shape])


def _row(it: Evidence, finding: Finding) -> tuple[str, ...]:
    size = NOTHING if finding.bytes_per_token is None else count(finding.bytes_per_token)
    return (finding.variant, finding.name, size, *(metric.said(finding) for metric in it.metrics))
