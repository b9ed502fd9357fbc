"""Median, spread, interval: from cases C12, C13, C14 and from data whose true median is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.measuring import audit
from experiments.measuring.statistics import CONFIDENCE, Summary, summarise
from tests.experiments.builders import array


def test_c13_nine_quick_and_one_very_slow() -> None:
    us = array([[35.0] * 9 + [45_000.0]])
    told = summarise(us)
    assert told.p50 == 35.0
    assert us.mean() == 4531.5  # what a mean would have said
    assert (told.samples, told.rounds, told.outliers, told.largest) == (10, 1, 1, 45_000.0)
    assert told.p10 == 35.0
    assert told.p90 == pytest.approx(35 + 0.1 * (45_000 - 35))  # linear between the 9th and the 10th value
    note = audit.no_outliers(told)
    assert not note.holds
    assert str(note) == "outliers=note (1 of 10 above 5x the median, largest 4.5e+04 us)"
    assert audit.failures([note]) == ""  # kept and said; it quarantines nothing


def test_c12_a_recompile_within_the_samples_shows() -> None:
    told = summarise(array([[5000.0] * 4, [5000.0, 5000.0, 5000.0, 505_000.0]]))
    assert told.p50 == 5000.0
    assert told.largest >= 500_000.0
    assert told.outliers == 1


def test_c14_one_sample_has_no_spread() -> None:
    assert summarise(array([[0.0553777]])) == Summary(0.0553777, None, None, None, None, 1, 1, 0, 0.0553777)


@pytest.mark.parametrize("shape", [(10, 1), (1, 10), (5, 2), (2, 5)])
def test_c14_ten_samples_have_one(shape: tuple[int, int]) -> None:
    told = summarise(array(np.arange(1.0, 11.0).reshape(shape).tolist()))
    assert (told.samples, told.rounds) == (10, shape[0])
    assert (told.p50, told.p10, told.p90) == (5.5, 1.9, 9.1)
    assert told.ci_low is not None
    assert told.ci_high is not None
    assert 0 < told.ci_low < 5.5 < told.ci_high


def test_equal_samples_have_an_interval_of_no_width() -> None:
    told = summarise(np.full((4, 3), 7.0))
    assert (told.p10, told.p50, told.p90, told.ci_low, told.ci_high) == (7.0,) * 5
    assert told.outliers == 0


@pytest.mark.parametrize(("us", "outliers"), [([10.0, 10.0, 50.0], 0), ([10.0, 10.0, 50.1], 1)])
def test_outliers_lie_above_five_times_the_median(us: list[float], outliers: int) -> None:
    assert summarise(array([us])).outliers == outliers


def test_nothing_is_trimmed_and_nothing_is_changed() -> None:
    us = np.random.default_rng(0).lognormal(size=(6, 8))
    before = us.copy()
    told = summarise(us)
    assert np.array_equal(us, before)
    assert told.samples == 48
    assert told.largest == us.max()
    assert told.p50 == np.sort(us.ravel())[23:25].mean()


# the interval


def test_equal_samples_give_equal_intervals() -> None:
    us = np.random.default_rng(1).normal(100, 5, size=(6, 8))
    assert summarise(us) == summarise(us.copy())


def covered(trials: int, draw: object) -> float:
    """Share of trials whose interval holds the true median 100."""
    assert callable(draw)
    hits = 0
    for seed in range(trials):
        told = summarise(draw(np.random.default_rng(seed)))
        assert told.ci_low is not None
        assert told.ci_high is not None
        assert told.ci_low <= told.p50 <= told.ci_high
        hits += told.ci_low <= 100 <= told.ci_high
    return hits / trials


def independent(rng: np.random.Generator) -> NDArray[np.float64]:
    return rng.normal(100, 5, size=(1, 40))


def shifted_rounds(rng: np.random.Generator) -> NDArray[np.float64]:
    """Rounds that differ among themselves as a machine does that is now cool, now warm."""
    return rng.normal(100, 5, size=(12, 1)) + rng.normal(0, 1, size=(12, 8))


def test_the_interval_covers_the_median_about_as_often_as_it_says() -> None:
    assert CONFIDENCE == 0.95
    assert 0.90 <= covered(200, independent) <= 0.99


@pytest.mark.parametrize("rounds", [3, 4, 6])
def test_it_does_so_however_few_the_rounds(rounds: int) -> None:
    """Percentiles of the bootstrap cannot leave the range of three rounds, and cover the median 75 % of the time."""
    assert 0.925 <= covered(400, lambda rng: few_rounds(rng, rounds)) <= 0.985


def few_rounds(rng: np.random.Generator, rounds: int) -> NDArray[np.float64]:
    """Eight replicas per round, every round on a level of its own, as a machine does."""
    return 100 * np.exp(0.02 * rng.standard_normal((rounds, 1)) + 0.005 * rng.standard_normal((rounds, 8)))


def test_rounds_are_resampled_whole() -> None:
    """Samples of a round are not independent: taking each by itself would promise five times too much."""
    assert 0.85 <= covered(200, shifted_rounds) <= 0.99
    assert covered(200, lambda rng: shifted_rounds(rng).reshape(1, -1)) < 0.60


def test_differences_between_rounds_widen_the_interval() -> None:
    noise = np.random.default_rng(2).normal(0, 1, size=(6, 8))
    level = np.array([[-20.0], [-10.0], [-5.0], [5.0], [10.0], [20.0]])
    same, moved = summarise(100 + noise), summarise(100 + noise + level)
    widths = [(s.ci_high or 0) - (s.ci_low or 0) for s in (same, moved)]
    assert widths[1] > 10 * widths[0]
