"""How a time grows with the context: fits of it, local exponents, a fixed cost, and times added up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import lsq_linear

Numbers = NDArray[np.float64]
EXACT = 1e-3  # relative: counts are whole numbers, so what is no sum of two powers is off by more


@dataclass(frozen=True)
class Quadratic:
    """``a + b T + c T^2`` in the unit of the times; ``worst`` is the largest relative residual of the fitted points."""

    a: float
    b: float
    c: float
    worst: float


def fit_quadratic(tokens: ArrayLike, times: ArrayLike) -> Quadratic | None:
    """Least squares of relative residuals, so that short contexts count as much as long; None below three contexts."""
    t, y = np.asarray(tokens, dtype=float), np.asarray(times, dtype=float)
    if len(np.unique(t)) < 3:
        return None
    unit = t.max()  # powers of T itself would differ by many orders of magnitude
    powers = np.stack([np.ones_like(t), t / unit, (t / unit) ** 2], axis=1)
    solved = np.linalg.lstsq(powers / y[:, None], np.ones_like(y), rcond=None)[0]
    worst = float(np.abs(powers @ solved / y - 1).max())
    return Quadratic(float(solved[0]), float(solved[1] / unit), float(solved[2] / unit**2), worst)


@dataclass(frozen=True)
class Rates:
    """``time = fixed + linear * L + square * S``: L, S the least times of work that grows with T, and with T^2.

    Both factors are at least 1, since nothing is faster than its floor. ``times`` are the fitted ones.
    """

    fixed: float
    linear: float
    square: float
    times: Numbers


def fit_rates(tokens: ArrayLike, times: ArrayLike, floors: ArrayLike) -> Rates | None:
    """How much longer than their floors the two kinds of work take: least squares of relative residuals.

    ``floors`` are of both together, by one rate: what of them grows with T is told from what grows with T^2 by their
    own growth. None below four contexts, which three numbers always fit, and where they grow otherwise (a window).
    """
    t, y, floor = (np.asarray(numbers, dtype=float) for numbers in (tokens, times, floors))
    if len(np.unique(t)) < 4:
        return None
    work = np.stack([t / t.max(), (t / t.max()) ** 2], axis=1)
    parts = np.linalg.lstsq(work / floor[:, None], np.ones_like(y), rcond=None)[0] * work
    if np.abs(parts.sum(axis=1) / floor - 1).max() > EXACT or (parts.sum(axis=0) < EXACT * floor.sum()).any():
        return None
    columns = np.concatenate([np.ones_like(y)[:, None], parts], axis=1)
    solved = lsq_linear(columns / y[:, None], np.ones_like(y), bounds=([0, 1, 1], np.inf)).x
    return Rates(float(solved[0]), float(solved[1]), float(solved[2]), columns @ solved)


def exponents(tokens: ArrayLike, values: ArrayLike) -> Numbers:
    """d log value / d log T between neighbouring contexts: 1 where a value grows as T, 2 where as T^2."""
    t, v = np.log(np.asarray(tokens, dtype=float)), np.log(np.asarray(values, dtype=float))
    slopes: Numbers = np.diff(v) / np.diff(t)
    return slopes


def fixed_cost(times: ArrayLike, floors: ArrayLike) -> float:
    """What of the times does not follow the floors: o >= 0 of ``time = o + k floor``, k >= 1, by relative residuals.

    Launches, Python, and bytes that arithmetic should have hidden but did not. Taken as small as the points allow.
    """
    y, f = np.asarray(times, dtype=float), np.asarray(floors, dtype=float)
    if len(y) < 2:
        return 0.0
    columns = np.stack([1 / y, f / y], axis=1)
    solved = np.linalg.lstsq(columns, np.ones_like(y), rcond=None)[0]
    if solved[1] < 1:  # nothing is faster than its floor
        weights = 1 / y**2
        return max(0.0, float((weights * (y - f)).sum() / weights.sum()))
    return max(0.0, float(solved[0]))


def cumulative(tokens: Sequence[int], times: ArrayLike) -> Numbers:
    """Time of all steps from the first context on, up to and with each context: one step per token.

    Between measured contexts a step's time is taken from the straight line that joins them; before the first nothing
    is counted, for nothing was measured there.
    """
    every = np.arange(tokens[0], tokens[-1] + 1)
    added = np.cumsum(np.interp(every, tokens, np.asarray(times, dtype=float)))
    return np.asarray(added[np.asarray(tokens) - tokens[0]], dtype=float)
