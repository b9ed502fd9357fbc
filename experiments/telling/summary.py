"""The outcome as a short plain-text table for a terminal."""

from collections.abc import Sequence
from typing import Any

from experiments.telling.decision import Decision
from experiments.telling.frame import family_order, records
from experiments.telling.outcome import grouped
from experiments.telling.words import count, number, percent

HEADER = ("attention", "cache B/token", "attend us", "GB/s", "roofline", "step us", "GB/s", "roofline")


def summary_table(decisions: Sequence[Decision]) -> str:
    """Per setting: each variant at the decision point (one layer, whole batch, medians), then the verdict."""
    return "\n\n".join(_setting(d) for d in decisions)


def _setting(decision: Decision) -> str:
    setting = decision.setting
    context = setting.rows["context"]
    rows = records(setting.rows[context.isna() | (context == decision.context).fillna(False)])
    lines = [_line(label, rows, decision.temperature) for label in sorted({r["label"] for r in rows}, key=family_order)]
    return "\n".join(
        [
            "; ".join(filter(None, [setting.title, setting.differs, decision.point, "one layer"])),
            "",
            *_aligned([HEADER, *lines]),
            "",
            f"verdict: {decision.verdict}",
            *([f"  caution: {decision.caution}"] if decision.caution else []),
            *(f"  note: {flag}" for flag in decision.kernel_limited.values()),
            *(f"  not compared: {absent}" for absent in grouped(decision.absent)),
            *([f"  next step: {decision.next_step}"] if decision.next_step else []),
        ]
    )


def _line(label: str, rows: Sequence[dict[str, Any]], temperature: str | None) -> tuple[str, ...]:
    mine = [r for r in rows if r["label"] == label]
    size = next((r["bytes_per_token"] for r in mine if r["bytes_per_token"] is not None), None)
    cells = [_scope([r for r in mine if r["scope"] == scope], temperature) for scope in ("attend", "step")]
    return (label, count(size), *cells[0], *cells[1])


def _scope(rows: Sequence[dict[str, Any]], temperature: str | None) -> tuple[str, str, str]:
    """The newest row, of the compared temperature if there is one; a row without a time shows its status."""
    row = max(rows, key=lambda r: (r["temperature"] == temperature, r["repeat"]), default=None)
    if row is None:
        return "not run", "", ""
    if row["status"] != "ok":
        return row["status"], "", ""
    said = number(row["latency_us_p50"]) + (f" {row['temperature']}" if row["temperature"] != temperature else "")
    return said, number(row["bandwidth_gbps"]), percent(row["roofline_fraction"])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return [
        "  ".join([line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]).rstrip()
        for line in lines
    ]
