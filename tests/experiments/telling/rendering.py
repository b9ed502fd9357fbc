"""The page of some rows, without drawing its figures."""

from collections.abc import Sequence

from experiments.record import Measurement
from experiments.telling.decision import decide_all
from experiments.telling.figures.canvas import Drawn
from experiments.telling.page import Facts, render
from experiments.telling.plots import FIGURES
from experiments.telling.setting import settings
from experiments.telling.support import support
from tests.experiments.telling.rows import rule, table


def facts(
    *rows: Measurement, warnings: tuple[str, ...] = (), expected: Sequence[str] = (), context: str | None = None
) -> Facts:
    """What a report on the rows tells; its figures are names alone."""
    told = table(*rows, warnings=warnings)
    split = settings(told.table)
    by = rule(expected=expected, context=context)
    figures = [[Drawn(n, n, f"alt of {n}", (), it.BEHIND.table(page)) for n, it in FIGURES.items()] for page in split]
    decisions = decide_all(split, by)
    matrices = [support(d, by) for d in decisions]
    drawn = [Drawn("support", "support", "alt of support", ()) if it else None for it in matrices]
    return Facts(told, split, decisions, figures, matrices, drawn, by, "python -m experiments.report runs=x")


def text_of(
    *rows: Measurement, warnings: tuple[str, ...] = (), expected: Sequence[str] = (), context: str | None = None
) -> str:
    """The text of report.md."""
    return render(facts(*rows, warnings=warnings, expected=expected, context=context))
