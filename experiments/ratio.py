"""How sure a median is, and the ratio of two: numpy and one quantile of scipy.

The statistics are the median over all samples, and the ratio of two such medians. Their standard error comes from a
bootstrap over whole rounds (samples of one round are not independent), on the logarithm, where ``b/a`` and ``a/b`` are
mirror images. The interval is Student's t times that error. Percentiles of the bootstrap itself would be too narrow
here: with 3 rounds its values cannot leave the range of the 3, and what is called 95 % then covers the true value about
75 to 80 % of the time.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

RESAMPLES = 1000
FEWEST_ROUNDS = 3  # below this there is no spread between rounds to speak of
_CHUNK = 2**20  # samples that are resampled at once: memory stays small however long a run was

Samples = NDArray[np.float64]
Interval = tuple[float, float]


def median_interval(samples: Samples, confidence: float, seed: int = 0) -> Interval:
    """Confidence interval of the median of positive ``samples`` [rounds, replicas], at least two rounds.

    ``ratio_of_intervals`` reads its standard error back from it. Raises ValueError for anything else.
    """
    _check_samples("samples", samples)
    _check_confidence(confidence)
    if len(samples) < 2:
        raise ValueError(f"an interval needs at least 2 rounds; got {len(samples)}")
    rng = np.random.default_rng(seed)
    return _around(float(np.median(samples)), _variance(samples, rng), len(samples) - 1, confidence)


def ratio_interval(a: Samples, b: Samples, confidence: float, paired: bool, seed: int = 0) -> Interval | None:
    """Confidence interval of ``median(b) / median(a)``; None where a side has fewer than ``FEWEST_ROUNDS`` rounds.

    ``a``, ``b``: positive samples [rounds, replicas] in one unit. ``paired``: both were taken in the same rounds of one
    run, so round i of one is resampled with round i of the other and what slowed both cancels. Else each side is
    resampled by itself. ``seed`` makes equal samples give equal intervals. Raises ValueError for anything else.
    """
    for name, samples in (("a", a), ("b", b)):
        _check_samples(name, samples)
    if paired and len(a) != len(b):
        raise ValueError(f"paired samples need the same rounds on both sides; got {len(a)} and {len(b)}")
    _check_confidence(confidence)
    if min(len(a), len(b)) < FEWEST_ROUNDS:
        return None
    rng = np.random.default_rng(seed)
    centre = float(np.median(b) / np.median(a))
    if paired:
        return _around(centre, _paired_variance(a, b, rng), len(a) - 1, confidence)
    return _combined(centre, (_variance(a, rng), len(a) - 1), (_variance(b, rng), len(b) - 1), confidence)


def relative_ratio(
    a: Sequence[Samples], b: Sequence[Samples], which: int, confidence: float
) -> tuple[float, Interval] | None:
    """How much one series changed from run a to run b beside the other series of its race, and the interval of that.

    ``a``, ``b``: positive samples [rounds, replicas] of all series of a race, at least two, taken in the same rounds of
    a run. Of each round: the series' median over the middle one of the others', so that what all of them met cancels;
    b's geometric mean over a's. None where a run has fewer than ``FEWEST_ROUNDS`` rounds.
    """
    _check_confidence(confidence)
    logs = [_against_others(side, which) for side in (a, b)]
    if min(map(len, logs)) < FEWEST_ROUNDS:
        return None
    ours, theirs = ((float(side.var(ddof=1)) / len(side), len(side) - 1) for side in logs)
    centre = math.exp(logs[1].mean() - logs[0].mean())
    return centre, _combined(centre, ours, theirs, confidence)


def ratio_of_intervals(
    a: tuple[float, Interval, int], b: tuple[float, Interval, int], confidence: float, known: float = 0.95
) -> Interval | None:
    """The same interval from what a row keeps where raw samples are gone: (median, its ``known`` interval, rounds).

    Each median's standard error is read back from its own interval, which is one of ``median_interval``. None where a
    side has fewer than ``FEWEST_ROUNDS`` rounds. Raises ValueError for a number that no time can have.
    """
    for median, (low, high), _ in (a, b):
        if not 0 < low <= high < math.inf or not 0 < median < math.inf:
            raise ValueError(f"expected 0 < low <= high and a median > 0; got {low}, {high} and {median}")
    _check_confidence(confidence)
    if min(a[2], b[2]) < FEWEST_ROUNDS:
        return None
    ours, theirs = (
        ((math.log(high / low) / (2 * _errors(rounds - 1, known))) ** 2, rounds - 1)
        for _, (low, high), rounds in (a, b)
    )
    return _combined(b[0] / a[0], ours, theirs, confidence)


def _against_others(race: Sequence[Samples], which: int) -> Samples:
    """Log of one series' median less the middle one of the others', per round: another that changed moves it little."""
    for samples in race:
        _check_samples("race", samples)
    logs = np.log([np.median(samples, axis=1) for samples in race])
    return np.asarray(logs[which] - np.median(np.delete(logs, which, axis=0), axis=0))


def _combined(centre: float, a: tuple[float, int], b: tuple[float, int], confidence: float) -> Interval:
    """Interval around the ratio of two independent sides (variance of the log, freedom each), after Welch."""
    variance = a[0] + b[0]
    spread = sum(part**2 / freedom for part, freedom in (a, b))
    freedom = variance**2 / spread if spread else float(a[1] + b[1])
    return _around(centre, variance, freedom, confidence)


def _around(centre: float, variance: float, freedom: float, confidence: float) -> Interval:
    """Around a value, by the variance of its logarithm; of no width, and exact, where there is no variance."""
    reach = _errors(freedom, confidence) * math.sqrt(variance)
    return centre * math.exp(-reach), centre * math.exp(reach)


def _errors(freedom: float, confidence: float) -> float:
    """How many standard errors an interval reaches to each side."""
    return float(stdtrit(freedom, (1 + confidence) / 2))


def _variance(samples: Samples, rng: np.random.Generator) -> float:
    """Variance of the log median over resampled rounds; n/(n-1) undoes the bootstrap's bias for few rounds."""
    picks = rng.integers(len(samples), size=(RESAMPLES, len(samples)))
    return _unbiased(np.log(_medians(samples, picks)), len(samples))


def _paired_variance(a: Samples, b: Samples, rng: np.random.Generator) -> float:
    picks = rng.integers(len(a), size=(RESAMPLES, len(a)))
    return _unbiased(np.log(_medians(b, picks) / _medians(a, picks)), len(a))


def _unbiased(values: Samples, rounds: int) -> float:
    return float((values - values[0]).var(ddof=1)) * rounds / (rounds - 1)  # of equal values exactly 0


def _medians(samples: Samples, picks: NDArray[np.int64]) -> Samples:
    """Median of all samples of the picked rounds, [resamples]."""
    step = max(1, _CHUNK // samples.size)
    parts = (picks[start : start + step] for start in range(0, len(picks), step))
    return np.concatenate([np.median(samples[part].reshape(len(part), -1), axis=1) for part in parts])


def _check_samples(name: str, samples: Samples) -> None:
    if samples.ndim != 2 or not samples.size or not (np.isfinite(samples) & (samples > 0)).all():
        raise ValueError(f"{name} must hold finite samples > 0, [rounds, replicas]; got shape {samples.shape}")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, e.g. 0.99; got {confidence!r}")
