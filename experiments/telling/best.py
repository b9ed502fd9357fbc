"""Each variant's best at the decision point: who computed it and how far it stays from the roofline.

Like is held against like: one machine, model, dtype, batch, context, scope, temperature and number of queries.
"""

from dataclasses import dataclass

from experiments.telling.candidates import Rows, at_point, decision_context, latest, point_rows, scope_rows
from experiments.telling.decision import Decision
from experiments.telling.frame import family_order
from experiments.telling.rule import Rule
from experiments.telling.tables import Row, Table
from experiments.telling.words import NOTHING, computed_by, latency, percent, times

KERNEL_LIMITED = "kernel-limited"
HEADER = ("variant", "scope", "best backend", "us p50 [CI] n", "over its floor", "% of roofline", "limit", "row")


@dataclass(frozen=True)
class Best:
    """The point that is looked at and each variant's ok row of every scope there; without one, no ``temperature``."""

    context: int | None
    temperature: str | None
    rows: Rows


def best(decision: Decision, rule: Rule) -> Best:
    """The best rows where the decision fell; where its scope was not run, where ``attend`` alone would decide."""
    context, temperature = decision.context, decision.temperature
    if not decision.candidates:
        rows = scope_rows(decision.setting, "attend")
        context = decision_context(rows, rule)
        temperature, _ = at_point(decision.setting, "attend", context)
    found = [
        row
        for scope in dict.fromkeys(("attend", rule.scope))
        for row in latest(point_rows(decision.setting, scope, context), temperature)
    ]
    return Best(context, temperature, sorted(found, key=lambda r: family_order(r["label"])))


def best_table(decision: Decision, rule: Rule) -> Table:
    """One line per variant and scope; ``limit``: what sets the time, the kernel or what bounds the roofline there."""
    return Table(HEADER, tuple(_line(row, decision, rule) for row in best(decision, rule).rows))


def _line(row: Row, decision: Decision, rule: Rule) -> tuple[str, ...]:
    share = row["roofline_fraction"]
    slow = share is not None and share < rule.kernel_limited_below and not decision.setting.predicted
    return (
        row["label"],
        row["scope"],
        computed_by(row),
        latency(row),
        times(1 / share) if share else NOTHING,
        percent(share),
        KERNEL_LIMITED if slow else row["bound"] or NOTHING,
        row["key"],
    )
