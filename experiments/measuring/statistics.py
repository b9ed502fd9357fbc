"""From raw samples to the few numbers of a row; nothing is trimmed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
CONFIDENCE = 0.95
LEAST_ROUNDS = 3  # of which an interval over rounds can be made
OUTLIER = 5.0  # times the median: a preempted thread, a recompilation, a throttled clock


@dataclass(frozen=True)
class Summary:
    """Median, spread and confidence interval in the samples' unit; None where one sample has no spread."""

    p50: float
    p10: float | None
    p90: float | None
    ci_low: float | None
    ci_high: float | None
    samples: int
    rounds: int
    outliers: int
    largest: float


def summarise(us: NDArray[np.float64]) -> Summary:
    """Summarise samples [rounds, calls]: linear-interpolated quantiles, percentile bootstrap of the median.

    Rounds are resampled whole where there are at least three, for samples of one round are not independent.
    """
    flat = us.ravel()
    p50 = float(np.median(flat))
    outliers = int((flat > OUTLIER * p50).sum())
    rounds, largest = len(us), float(flat.max())
    if flat.size == 1:
        return Summary(p50, None, None, None, None, 1, rounds, outliers, largest)
    p10, p90 = (float(v) for v in np.quantile(flat, (0.1, 0.9)))
    low, high = _median_interval(us if rounds >= LEAST_ROUNDS else flat[:, None])
    return Summary(p50, p10, p90, low, high, flat.size, rounds, outliers, largest)


def _median_interval(groups: NDArray[np.float64]) -> tuple[float, float]:
    """Percentile interval of the median over resampled rows; seeded, so that equal samples give equal intervals."""
    rng = np.random.default_rng(0)
    picks = rng.integers(len(groups), size=(RESAMPLES, len(groups)))
    medians = np.median(groups[picks].reshape(RESAMPLES, -1), axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians, (tail, 1 - tail))
    return float(low), float(high)
