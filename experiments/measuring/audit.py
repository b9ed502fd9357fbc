"""Checks that a timed point must pass before its row may be believed; each is data, and all are kept in the row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from experiments.measuring.statistics import OUTLIER, Summary

BETWEEN_US = 500.0  # per call, for what surrounds it
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


def fresh(error: float, budget: float) -> Check:
    """The next call, on other data, is right as well: a kernel that repeats its last output is not."""
    return within("fresh", error, budget)


def varied(spread: float) -> Check:
    """The cache holds numbers that differ: on zeros, or any one number, a kernel may be fast and seem right."""
    return Check("data", spread > 0, f"numbers {spread:.3g} apart")


def distinct_pages(distinct: int, used: int) -> Check:
    """Every page in use is a piece of memory of its own: shared ones would be read from a cache."""
    return Check("pages", distinct == used, f"{distinct} distinct of {used}")


def counted(counted: int | None, said: int | None) -> Check:
    """The bytes that the row says are those of the tokens in the tensors, where those can be counted."""
    if counted is None:
        return Check("bytes", True, "not counted: not every token is kept")
    return Check("bytes", counted == said, f"{said} said, {counted} counted B")


def whole_time(taken: Sequence[tuple[float, float, int]]) -> Check:
    """Samples add up to the time that passed around them: a clock that does not wait for the device tells less.

    ``taken`` per round: sum of the samples, time from before the first call until the device was idle, both in us, and
    calls. What lies between calls may take as long as they do and ``BETWEEN_US`` each; the best round counts, since
    other load may stop any one.
    """
    worst = min((wall - 2 * told - BETWEEN_US * calls, told, wall) for told, wall, calls in taken)
    return Check("clock", worst[0] <= 0, f"samples add up to {worst[1]:.4g} of {worst[2]:.4g} us")


def same_threads(threads: set[int], asked: int) -> Check:
    """Samples were taken on the threads that the row says."""
    return Check("threads", threads == {asked}, f"{', '.join(map(str, sorted(threads)))} of {asked}")


def nothing_compiled(count: int) -> Check:
    """No compiler ran while samples were taken."""
    return Check("compiled", count == 0, f"{count} compilations within rounds")


def no_outliers(summary: Summary) -> Check:
    """Samples far above the median: a preempted thread, a recompilation, a throttled clock. Kept, and said."""
    numbers = f"{summary.outliers} of {summary.samples} above {OUTLIER:g}x the median, largest {summary.largest:.4g} us"
    return Check("outliers", summary.outliers == 0, numbers, warns=True)


def failures(checks: Iterable[Check]) -> str:
    """The failed checks as one reason; empty if none failed."""
    return "; ".join(str(check) for check in checks if not (check.holds or check.warns))
