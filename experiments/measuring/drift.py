"""Whether the machine at the end of a run is the machine of its beginning.

Rows are written once, when their point has ended. So what comes out here is said beside them, in the run's own file of
checks: a series of the first point is measured a second time after the last one, and so are the ceilings. Rows of one
race are compared within their rounds and stand whatever is found; absolute numbers of points that lie far apart in
time are as sure as this says.
"""

from collections.abc import Sequence
from dataclasses import replace

from experiments.measuring.audit import Check
from experiments.measuring.ceilings import Ceilings
from experiments.measuring.series import TimerChoice
from experiments.measuring.statistics import LEAST_ROUNDS
from experiments.measuring.timed import Measured
from experiments.record import Measurement

DRIFT = 0.05  # a median may have changed by as much


def few_rounds(timer: TimerChoice) -> TimerChoice:
    """The same timer for as few rounds as an interval needs."""
    return replace(timer, rounds=LEAST_ROUNDS, max_rounds=LEAST_ROUNDS)


def compare(first: Sequence[Measured], again: Sequence[Measured]) -> list[tuple[Measurement, Check]]:
    """The rows of the repeat that have a counterpart, each with a check of the two medians."""
    before = {row.key: row.latency_us_p50 for measured in first for row in measured.rows}
    checks = []
    for row in (row for measured in again for row in measured.rows):
        start, end = before.get(row.key), row.latency_us_p50
        if start is not None and end is not None:
            checks.append((row, _steady("drift", start, end, "us")))
    return checks


def compare_ceilings(before: Ceilings, after: Ceilings) -> list[Check]:
    """One check per read ceiling."""
    return [
        _steady("cold ceiling", before.cold_gbps, after.cold_gbps, "GB/s"),
        _steady("resident ceiling", before.resident_gbps, after.resident_gbps, "GB/s"),
    ]


def _steady(name: str, start: float, end: float, unit: str) -> Check:
    ratio = end / start
    numbers = f"{start:.4g} {unit} at the start, {end:.4g} at the end, x{ratio:.3f}"
    return Check(name, max(ratio, 1 / ratio) <= 1 + DRIFT, numbers, warns=True)
