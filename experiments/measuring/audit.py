"""Checks that a timed point must pass before its row may be believed; each is data, and all are kept in the row."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from experiments.measuring.clocks import Clocks
from experiments.measuring.statistics import OUTLIER, Summary

BETWEEN_US = 500.0  # per call, for what surrounds it
TOLERANCE = 1.05  # a read kernel of ours may beat the best of the ceiling's by noise, not by more
LITTLE = 0.1  # of the cache: what a call that reads it where it lies may allocate
PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::scaled_dot_product_attention")


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


def whole_layer(error: float, budget: float) -> Check:
    """A step leaves nothing out: see ``layer``."""
    return within("layer", error, budget)


def kernel_ran(named: str, shows: Sequence[str] | None, names: Collection[str]) -> Check:
    """What ran is what the row will name, by the operators and kernels seen while it was called once: ``Plan.shows``.

    Of code that no profile shows, all that can be told is that torch did not do it. What cannot be told is no failure,
    and not said to hold either.
    """
    blind = shows and all(part.startswith("kernel:") for part in shows) and not any("kernel:" in n for n in names)
    if shows is None or blind:
        return Check("kernel", False, f"{named}: not known, no profile tells it", warns=True)
    if shows:
        seen = sorted(name for name in names if any(part in name for part in shows))
        return Check("kernel", bool(seen), f"{named}: saw {', '.join(seen) or 'no ' + ' or '.join(shows)}")
    products = sorted(set(PRODUCTS) & set(names))
    return Check("kernel", not products, f"{named}: saw {', '.join(products) or 'no product of torch'}")


def little_allocated(allocated: int, cache: int) -> Check:
    """A kernel that reads keys and values where they lie allocates little beside them; one that expands them, much."""
    return Check("transient", allocated <= LITTLE * cache, f"{allocated} B a call, cache {cache} B", warns=True)


def not_throttled(looks: Sequence[tuple[Clocks, Clocks]]) -> Check:
    """No clock was held down by heat or power while samples were taken, by looks before and after each round."""
    events = [b.events - a.events for a, b in looks if a.events is not None and b.events is not None]
    held = sorted({word for pair in looks for look in pair for word in look.held or ()})
    readable = bool(events) or any(look.held is not None for pair in looks for look in pair)
    mhz = [look.mhz for pair in looks for look in pair if look.mhz is not None]
    clock = f"clock {min(mhz):.0f} to {max(mhz):.0f} MHz" if mhz else "clock not readable"
    said = f"{sum(events)} events" + (f", {', '.join(held)}" if held else "") if readable else "events not readable"
    return Check("throttled", not sum(events) and not held, f"{said}, {clock}")


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
