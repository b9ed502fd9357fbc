"""A whole run: every selected point, one after another, whatever becomes of each."""

import gc
from collections.abc import Callable, Iterable, Mapping

from experiments.benching import attend, growth, step
from experiments.benching.ledger import Ledger
from experiments.benching.points import BenchPoint, Result
from experiments.benching.race import Latency
from experiments.benching.sizes import Sizes
from experiments.measuring.bench import Bench

Measure = Callable[[BenchPoint, Sizes, Bench], dict[str, Latency]]
Conclude = Callable[[BenchPoint, dict[str, Latency]], list[Result]]
SECTIONS: Mapping[str, tuple[Measure, Conclude]] = {
    "attend": (attend.attend_latencies, attend.speedups),
    "growth": (growth.growth_latencies, growth.nonlinearity),
    "pool": (growth.pool_latencies, growth.pool_ratio),
    "step": (step.step_latencies, step.speedups),
}


def compare(points: Iterable[BenchPoint], sizes: Sizes, bench: Bench, ledger: Ledger) -> None:
    """Measure every point; one that fails is a result without a value that says why, and the next one runs.

    Shares of the roofline come last: the ceilings are measured before and after, and other load can only lower them.
    """
    ours: dict[BenchPoint, float] = {}
    bench.ceilings  # noqa: B018  # measured here, before any cache takes memory
    for point in points:
        taken = _one(point, sizes, bench, ledger)
        if taken and point.section == "attend":
            ours[point] = taken[attend.OURS].p50_us
    if ours:
        bench.again()
    ledger.add(attend.roofline_fraction(point, sizes, us, bench) for point, us in ours.items())


def _one(point: BenchPoint, sizes: Sizes, bench: Bench, ledger: Ledger) -> dict[str, Latency] | None:
    measure, conclude = SECTIONS[point.section]
    try:
        taken = measure(point, sizes, bench)
    except Exception as error:
        ledger.failed(point, " ".join(f"{type(error).__name__}: {error}".split()))
        return None
    finally:
        gc.collect()  # caches of gigabytes must not wait for the next point's
    ledger.latencies += taken.values()
    ledger.add(conclude(point, taken))
    return taken
