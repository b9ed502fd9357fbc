"""Checks that a timed point must pass before its row may be believed; each is data, and all are kept in the row."""

from collections.abc import Iterable
from dataclasses import dataclass

from experiments.measuring.statistics import OUTLIER, Summary

TOLERANCE = 1.05  # a read kernel of ours may beat the best of the ceiling's by noise, not by more


@dataclass(frozen=True)
class Check:
    """One check: its name, whether it holds, and the numbers it compared. ``warns`` only: it never quarantines."""

    name: str
    holds: bool
    numbers: str
    warns: bool = False

    def __str__(self) -> str:
        verdict = "ok" if self.holds else "note" if self.warns else "FAILED"
        return f"{self.name}={verdict} ({self.numbers})"


def below_ceiling(bandwidth_gbps: float, ceiling_gbps: float) -> Check:
    """Nothing reads faster than the best read kernel: else bytes were miscounted or came from a cache.

    Within the tolerance above it, the row only says so.
    """
    numbers = f"{bandwidth_gbps:.4g} of {ceiling_gbps:.4g} GB/s, at most x{TOLERANCE}"
    noise = bandwidth_gbps <= TOLERANCE * ceiling_gbps
    return Check("ceiling", bandwidth_gbps <= ceiling_gbps, numbers, warns=noise)


def allocated_as_predicted(allocated: int, predicted: int) -> Check:
    """The slabs take the bytes that planning counted."""
    return Check("allocated", allocated == predicted, f"{allocated} of {predicted} B")


def matches_oracle(error: float, budget: float) -> Check:
    """The timed output equals eager's on the same view, within what rounding explains."""
    return within("oracle", error, budget)


def within(name: str, error: float, budget: float) -> Check:
    """A relative error that rounding explains. Not so if it is not a number."""
    return Check(name, error <= budget, f"relative error {error:.3g}, budget {budget:.3g}")


def no_outliers(summary: Summary) -> Check:
    """Samples far above the median: a preempted thread, a recompilation, a throttled clock. Kept, and said."""
    numbers = f"{summary.outliers} of {summary.samples} above {OUTLIER:g}x the median, largest {summary.largest:.4g} us"
    return Check("outliers", summary.outliers == 0, numbers, warns=True)


def failures(checks: Iterable[Check]) -> str:
    """The failed checks as one reason; empty if none failed."""
    return "; ".join(str(check) for check in checks if not (check.holds or check.warns))
