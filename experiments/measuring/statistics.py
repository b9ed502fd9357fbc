"""From raw samples to the few numbers of a row; nothing is trimmed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.ratio import FEWEST_ROUNDS, median_interval

CONFIDENCE = 0.95
LEAST_ROUNDS = FEWEST_ROUNDS  # of which an interval over rounds can be made
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
    """Summarise positive samples [rounds, calls]: linear-interpolated quantiles, interval of the median over rounds.

    Where there are fewer than three rounds every sample counts as one, although samples of a round are not independent.
    """
    flat = us.ravel()
    p50 = float(np.median(flat))
    outliers = int((flat > OUTLIER * p50).sum())
    rounds, largest = len(us), float(flat.max())
    if flat.size == 1:
        return Summary(p50, None, None, None, None, 1, rounds, outliers, largest)
    p10, p90 = (float(v) for v in np.quantile(flat, (0.1, 0.9)))
    low, high = median_interval(us if rounds >= LEAST_ROUNDS else flat[:, None], CONFIDENCE)
    return Summary(p50, p10, p90, low, high, flat.size, rounds, outliers, largest)
