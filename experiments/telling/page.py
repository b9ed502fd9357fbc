"""report.md: the decision record in MADR form, filled from a report's facts by ``report.md.j2``."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from experiments.record import STATUSES
from experiments.telling.best import best_table
from experiments.telling.consequences import QUALITY, consequences
from experiments.telling.decision import Decision
from experiments.telling.figures.canvas import Drawn
from experiments.telling.folder import FIGURES
from experiments.telling.frame import Tidy, distinct, family_order, plain
from experiments.telling.markdown import Markdown, alt_text, code_block, escape, table
from experiments.telling.needs import Needs
from experiments.telling.published import POINTER
from experiments.telling.rule import Rule
from experiments.telling.section import Section
from experiments.telling.setting import Setting
from experiments.telling.support import Support, support_table
from experiments.telling.tables import Table, coverage, environment, gaps, not_run, points
from experiments.telling.whole import whole_table
from experiments.telling.words import NOTHING, count, exact_bytes, number, percent, tokens


@dataclass(frozen=True)
class Facts:
    """All a report tells: settings with figures, decisions with support matrices, the rule, and its own command."""

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


def title(decisions: Sequence[Decision]) -> str:
    """``Attention for llama-3-8b by decode cost: choose gqa``, or how many outcomes there are."""
    models = ", ".join(distinct(d.setting.values["model"] for d in decisions))
    measured = [d for d in decisions if not d.setting.predicted]
    verdicts = list(dict.fromkeys(d.verdict for d in measured or decisions))
    many = f"{len(measured or decisions)} settings, {len(verdicts)} different outcomes"
    outcome = ("" if measured else "predicted, ") + (verdicts[0] if len(verdicts) == 1 else many)
    return f"Attention for {models} by decode cost: {outcome}"


def _context(facts: Facts) -> dict[str, Any]:
    rows = facts.tidy.table
    numbers = {id(page): n for n, page in enumerate(facts.pages, start=1)}
    return {
        "title": title(facts.decisions),
        "date": max((text[:10] for text in distinct(plain(rows["started_at"]))), default="unknown"),
        "models": distinct(plain(rows["model"])),
        "devices": distinct(plain(rows["device"])) or ["an unnamed device"],
        "variants": sorted(distinct(plain(rows["label"])), key=family_order),
        "options": _options(facts),
        "rule": asdict(facts.rule),
        "needs": _needs(facts.rule.needs),
        "several": any(page.several for page in facts.pages),
        "quality": f"{QUALITY} {POINTER}" if facts.published else QUALITY,
        "turning": facts.turning,
        "published": facts.published,
        "decisions": [
            {
                "number": numbers[id(d.setting)],
                "it": d,
                "batch": "unknown" if d.setting.values["batch"] is None else d.setting.values["batch"],
                "best": best_table(d, facts.rule),
                "whole": whole_table(d.wholes, facts.rule.needs),
                "consequences": consequences(d, facts.rule),
                "support": _support(support, matrix),
            }
            for d, support, matrix in zip(facts.decisions, facts.supports, facts.matrices, strict=True)
        ],
        "pages": [_page(facts, n, page) for n, page in enumerate(facts.pages)],
        "environment": environment(facts.pages),
        "gaps": gaps(facts.pages, frozenset().union(*(s.explained for s in (*facts.supports, *facts.sections) if s))),
        "sections": facts.sections,
        "not_run": not_run(facts.pages),
        "never": sorted({a.variant for d in facts.decisions for a in d.absent if a.why.startswith("never run")}),
        "counts": _counts(facts.tidy),
        "method": _method(facts),
        "warnings": facts.tidy.warnings,
        "commands": distinct(plain(rows["command"])),
        "command": facts.command,
    }


def _needs(needs: Needs) -> list[str]:
    """What is asked of the whole model, in words."""
    asked = {
        "caches on one device, in at most": None if needs.memory is None else exact_bytes(needs.memory),
        "a token, in at most": None if needs.ms_per_token is None else f"{number(needs.ms_per_token)} ms",
        "prefill, in at most": None if needs.ms_to_first_token is None else f"{number(needs.ms_to_first_token)} ms",
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
    }


def _options(facts: Facts) -> Table:
    """What each variant is, as far as the rows say; several values of a column are all named."""
    rows = facts.tidy.table
    coded = bool(rows["kv_error"].notna().any())
    lines = []
    for label in sorted(distinct(plain(rows["label"])), key=family_order):
        mine = rows[rows["label"] == label]
        said = {c: _span(distinct(plain(mine[c]))) for c in _OPTION_COLUMNS}
        kind = " ".join(said[c] for c in ("kind", "form") if said[c] != NOTHING) or NOTHING
        heads = f"{said['num_q_heads']}:{said['num_kv_heads']}"
        error = (_coding_errors(mine),) if coded else ()
        lines.append((label, kind, heads, f"{said['d_qk']}/{said['d_v']}", said["bytes_per_token"], *error))
    return Table((*_OPTIONS, *(("attended values off by codes",) if coded else ())), tuple(lines))


def _coding_errors(rows: pd.DataFrame) -> str:
    """The largest relative error that each cache dtype of codes causes, against a cache of the weights' dtype."""
    worst = rows.dropna(subset=["kv_error"]).groupby("kv_dtype")["kv_error"].max()
    return ", ".join(f"{dtype}: {percent(error)}" for dtype, error in worst.items()) or NOTHING


_OPTIONS = ("variant", "module and form", "heads q:kv", "d_qk/d_v", "cache B/token/layer")
_OPTION_COLUMNS = ("kind", "form", "num_q_heads", "num_kv_heads", "d_qk", "d_v", "bytes_per_token")


def _span(values: Sequence[Any]) -> str:
    """The only value, or the first and the last."""
    said = [count(v) if isinstance(v, float) else str(v) for v in values]
    return (said[0] if len(said) == 1 else f"{said[0]} to {said[-1]}") if said else NOTHING


def _counts(tidy: Tidy) -> str:
    """Where every row that was read went."""
    by_status = tidy.table["status"].value_counts()
    parts = [f"{by_status[s]} {s}" for s in STATUSES if s in by_status.index]
    parts += [f"{tidy.superseded} superseded"] if tidy.superseded else []
    return f"{tidy.read} rows read = {' + '.join(parts)}"


def _method(facts: Facts) -> dict[str, Any]:
    """How rows came about; what concerns samples is said of measured rows alone."""
    table = facts.tidy.table
    rows = table[table["origin"] == "measured"]
    return {
        "predicted": len(rows) < len(table),
        "measured": len(rows) > 0,
        "samples": _span(distinct(plain(rows["samples"]))),
        "rounds": _span(distinct(plain(rows["rounds"]))),
        "temperatures": distinct(plain(rows["temperature"])),
        "reuse": _span([f"{bytes_:,}" for bytes_ in distinct(plain(rows["reuse_bytes"]))]),
        "kernels": ", ".join(distinct(plain(rows["kernel"]))) or "not named",
    }


def _image(drawn: Drawn) -> Markdown:
    """The figure with its alt text, and below it what it leaves out."""
    remarks = [f"* {escape(drawn.heading)}. {escape(remark)}" for remark in drawn.remarks]
    image = f"![{alt_text(drawn.alt)}]({FIGURES}/{drawn.stem}.png)"
    return Markdown("\n".join([image, "", *remarks] if remarks else [image]))


def _markdown_table(it: Table) -> str:
    return table(it.header, it.rows)
