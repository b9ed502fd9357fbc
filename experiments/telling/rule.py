"""The stated rule by which an outcome is computed; its numbers live in ``conf/report/``."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from experiments.telling.mix import Mix
from experiments.telling.needs import Needs
from experiments.telling.question import Question


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Meets the needs -> fastest beyond noise -> fewest cache bytes among ties -> what the model has, if still tied.

    ``question`` says of which settings and variants. ``scope`` is what is timed; ``batch`` and ``context`` (tokens) are
    the decision point. A null batch decides at each batch, a null context at the largest at which two variants have an
    ok row; of a mix the mean time by its shares is compared, and every one of its points must meet the needs.
    Times tie when their confidence intervals overlap or their ratio is at most ``tie_ratio``; predicted times also when
    both could be off by as much as nine of ten held-out points are.
    A variant whose row there is below ``kernel_limited_below`` of its roofline is called kernel-limited. Ratios are
    told against ``baseline``. ``expected`` variants are missed by name if they have no row. ``needs`` rule out what the
    whole model cannot do with. Raises ValueError naming the field.
    """

    question: Question
    scope: str
    batch: Mix | None
    context: Mix | None
    tie_ratio: float
    kernel_limited_below: float
    baseline: str
    expected: tuple[str, ...]
    needs: Needs

    def __post_init__(self) -> None:
        if self.scope not in ("attend", "step"):
            raise ValueError(f"report.scope must be attend or step; got {self.scope!r}")
        if not self.tie_ratio >= 1:
            raise ValueError(f"report.tie_ratio must be >= 1 (1 = only the intervals decide); got {self.tie_ratio!r}")
        if not 0 <= self.kernel_limited_below <= 1:
            raise ValueError(f"report.kernel_limited_below must be from 0 to 1; got {self.kernel_limited_below!r}")

    @property
    def asks(self) -> bool:
        """Whether there is a question, and so settings that it is not about."""
        return self.question != Question()

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> "Rule":
        """Build from a config mapping; sizes may be written ``8k``. ValueError names an unknown or missing field."""
        known = [f.name for f in fields(Rule)]
        wrong = sorted({*raw} ^ {*known})
        if wrong:
            raise ValueError(f"report must have exactly the fields {', '.join(known)}; check {wrong[0]!r}")
        return Rule(
            question=Question.parse(raw["question"]),
            scope=str(raw["scope"]),
            batch=Mix.parse(raw["batch"], "report.batch"),
            context=Mix.parse(raw["context"], "report.context"),
            tie_ratio=_number("tie_ratio", raw["tie_ratio"]),
            kernel_limited_below=_number("kernel_limited_below", raw["kernel_limited_below"]),
            baseline=str(raw["baseline"]),
            expected=tuple(str(name) for name in raw["expected"] or ()),
            needs=Needs.parse(raw["needs"]),
        )


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"report.{name} must be a number; got {value!r}")
    return float(value)
