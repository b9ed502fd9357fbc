"""report.md: the decision record in MADR form, filled from a report's facts by ``report.md.j2``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from experiments.record import STATUSES
from experiments.telling.best import best_table
from experiments.telling.consequences import QUALITY, consequences
from experiments.telling.decision import Decision
from experiments.telling.doubt import Doubts
from experiments.telling.figures.canvas import Drawn
from experiments.telling.folder import FIGURES
from experiments.telling.frame import Tidy, distinct, family_order, plain
from experiments.telling.judging.section import POINTER as MEASURED
from experiments.telling.judging.section import Beside
from experiments.telling.markdown import Markdown, alt_text, code_block, escape, table
from experiments.telling.method import method
from experiments.telling.needs import Needs
from experiments.telling.options import options
from experiments.telling.places import at_mix
from experiments.telling.published import POINTER
from experiments.telling.question import Question
from experiments.telling.rule import Rule
from experiments.telling.section import Section
from experiments.telling.setting import Setting
from experiments.telling.support import Support, support_table
from experiments.telling.tables import Table, coverage, environment, gaps, not_run, points
from experiments.telling.whole import whole_table
from experiments.telling.words import exact_bytes, number, tokens


@dataclass(frozen=True)
class Facts:
    """All a report tells: settings with figures, decisions with support matrices, the rule, and its own command.

    ``aside``: what the rule says where the question is not asked; ``spreads``: per decision, what the same
    devices used otherwise would gain. ``silent``: numbers of settings that only tell what would flip the outcome.
    ``quality``: of a small model, where that was scored.
    """

    tidy: Tidy
    pages: Sequence[Setting]
    decisions: Sequence[Decision]
    figures: Sequence[Sequence[Drawn]]
    supports: Sequence[Support | None]
    matrices: Sequence[Drawn | None]
    rule: Rule
    command: str
    sections: Sequence[Section] = ()
    published: Section | None = None
    turning: Section | None = None
    aside: Table | None = None
    spreads: Sequence[str | None] = ()
    silent: frozenset[int] = frozenset()
    doubts: Doubts = field(default_factory=dict)
    quality: Beside | None = None


def render(facts: Facts) -> str:
    """The text of report.md; the same facts give the same text."""
    folder = jinja2.FileSystemLoader(Path(__file__).parent, encoding="utf-8")
    # every value that a template prints goes through `escape`; only our own Markdown passes as it is
    engine = jinja2.Environment(
        loader=folder, undefined=jinja2.StrictUndefined, finalize=escape, trim_blocks=True, lstrip_blocks=True
    )
    engine.filters.update(table=_markdown_table, code=code_block, image=_image)
    several = len(facts.pages) > 1
    engine.globals["which"] = lambda n: Markdown(f"Setting {n}: " if several else "")
    return engine.get_template("report.md.j2").render(**_context(facts))


def title(decisions: Sequence[Decision], question: Question | None = None) -> str:
    """``Attention for llama-3-8b by decode cost: choose gqa``, or how many outcomes there are."""
    models = ", ".join(distinct(d.setting.values["model"] for d in decisions))
    asked = question.text if question else None
    measured = [d for d in decisions if not d.setting.predicted]
    verdicts = list(dict.fromkeys(d.verdict for d in measured or decisions))
    many = f"{len(measured or decisions)} settings, {len(verdicts)} different outcomes"
    outcome = ("" if measured else "predicted, ") + (verdicts[0] if len(verdicts) == 1 else many)
    if asked:
        return f"{asked} {outcome.replace('predicted, ', 'Predicted: ')}"
    return f"Attention for {models} by decode cost: {outcome}"


def _context(facts: Facts) -> dict[str, Any]:
    rows = facts.tidy.table
    numbers = {id(page): n for n, page in enumerate(facts.pages, start=1)}
    spreads = facts.spreads or [None] * len(facts.decisions)
    return {
        "title": title(facts.decisions, facts.rule.question),
        "question": _question(facts),
        "date": max((text[:10] for text in distinct(plain(rows["started_at"]))), default="unknown"),
        "models": distinct(plain(rows["model"])),
        "devices": distinct(plain(rows["device"])) or ["an unnamed device"],
        "variants": sorted(distinct(plain(rows["label"])), key=family_order),
        "options": options(_asked_rows(facts)),
        "rule": asdict(facts.rule),
        "at": {"batch": at_mix(facts.rule.batch, ""), "context": at_mix(facts.rule.context, "")},
        "aside": facts.aside,
        "silent": len(facts.silent),
        "needs": _needs(facts.rule.needs),
        "several": any(page.several for page in facts.pages),
        "quality": " ".join(_of_quality(facts)),
        "judged": facts.quality,
        "turning": facts.turning,
        "published": facts.published,
        "decisions": [
            {
                "number": numbers[id(d.setting)],
                "it": d,
                "batch": d.batch,
                "spread": spread,
                "best": best_table(d, facts.rule),
                "whole": whole_table(d.wholes),
                "consequences": consequences(d, facts.rule),
                "support": _support(support, matrix),
            }
            for d, support, matrix, spread in zip(facts.decisions, facts.supports, facts.matrices, spreads, strict=True)
        ],
        "pages": [_page(facts, n, page) for n, page in enumerate(facts.pages)],
        "environment": environment(facts.pages),
        "gaps": gaps(facts.pages, frozenset().union(*(s.explained for s in (*facts.supports, *facts.sections) if s))),
        "sections": facts.sections,
        "not_run": not_run(facts.pages),
        "never": sorted({a.variant for d in facts.decisions for a in d.absent if a.why.startswith("never run")}),
        "counts": _counts(facts.tidy),
        "method": method(rows, facts.doubts),
        "warnings": facts.tidy.warnings,
        "commands": distinct(plain(rows["command"])),
        "command": facts.command,
    }


def _of_quality(facts: Facts) -> list[str]:
    """That it is not part of the outcome, and where the report tells of it."""
    pointers = ((facts.published, POINTER), (facts.quality, MEASURED))
    return [QUALITY, *(pointer for there, pointer in pointers if there)]


def _question(facts: Facts) -> list[tuple[str, str]]:
    """What is asked, part by part; empty where nobody asked anything in particular."""
    asked, rule = facts.rule.question, facts.rule
    if not facts.rule.asks:
        return []
    about = {
        "model": asked.model,
        "device": asked.device,
        "tensor parallel": None if asked.tp is None else str(asked.tp),
        "context": at_mix(rule.context, ""),
        "batch": at_mix(rule.batch, ""),
        "to choose from": ", ".join(asked.variants or ()),
        "the model has": asked.own,
    }
    return [(name, said) for name, said in about.items() if said]


def _needs(needs: Needs) -> list[str]:
    """What is asked of the whole model, in words."""
    asked = {
        "caches on one device, beside the weights, in at most": None
        if needs.memory is None
        else exact_bytes(needs.memory),
        "a token, in at most": None if needs.ms_per_token is None else f"{number(needs.ms_per_token)} ms",
        "the first token of one prompt, in at most": None
        if needs.ms_to_first_token is None
        else f"{number(needs.ms_to_first_token)} ms",
    }
    return [f"{what} {most}" for what, most in asked.items() if most]


def _support(it: Support | None, drawn: Drawn | None) -> dict[str, Any] | None:
    if it is None:
        return None
    about = {"scope": it.scope, "context": tokens(it.context), "notes": it.notes}
    return {**about, "table": support_table(it), "figure": drawn}


def _page(facts: Facts, n: int, page: Setting) -> dict[str, Any]:
    ok, wanted = coverage(page)
    return {
        "number": n + 1,
        "it": page,
        "figures": facts.figures[n],
        "points": points(page),
        "ok": ok,
        "wanted": wanted,
        "silent": n + 1 in facts.silent,
    }


def _asked_rows(facts: Facts) -> pd.DataFrame:
    """Those that the question is about; all of them where nobody asked anything in particular."""
    if not facts.rule.asks:
        return facts.tidy.table
    return pd.concat([place.setting.tried for d in facts.decisions for place in d.places])


def _counts(tidy: Tidy) -> str:
    """Where every row that was read went."""
    by_status = tidy.table["status"].value_counts()
    parts = [f"{by_status[s]} {s}" for s in STATUSES if s in by_status.index]
    parts += [f"{tidy.superseded} superseded"] if tidy.superseded else []
    return f"{tidy.read} rows read = {' + '.join(parts)}"


def _image(drawn: Drawn) -> Markdown:
    """The figure with its alt text, and below it what it leaves out."""
    remarks = [f"* {escape(drawn.heading)}. {escape(remark)}" for remark in drawn.remarks]
    image = f"![{alt_text(drawn.alt)}]({FIGURES}/{drawn.stem}.png)"
    return Markdown("\n".join([image, "", *remarks] if remarks else [image]))


def _markdown_table(it: Table) -> str:
    return table(it.header, it.rows)
