"""The interval of a ratio: values worked out by other means, and how often it covers the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.ratio import median_interval, ratio_interval, ratio_of_intervals, relative_ratio
from tests.experiments.builders import exact

RUNS = 300


def noise(rng, rounds, replicas=8, between=0.01, within=0.005, us=100.0):
    """Samples [rounds, replicas] around ``us``: every round has its own level."""
    level = between * rng.standard_normal((rounds, 1))
    return us * np.exp(level + within * rng.standard_normal((rounds, replicas)))


def interval(a, b, confidence, paired):
    """An interval that must be there."""
    found = ratio_interval(a, b, confidence, paired)
    assert found is not None
    return found


def covered(ratio, rounds, confidence, paired, drift=0.0):
    """Share of simulated comparisons whose interval holds the true ratio."""
    rng = np.random.default_rng(7)
    hits = 0
    for _ in range(RUNS):
        together = np.exp(drift * rng.standard_normal((rounds, 1)))
        a, b = noise(rng, rounds) * together, noise(rng, rounds, us=100 * ratio) * together
        low, high = interval(a, b, confidence, paired)
        hits += low <= ratio <= high
    return hits / RUNS


@pytest.mark.parametrize("rounds", [3, 6])
@pytest.mark.parametrize(("paired", "drift"), [(False, 0.0), (True, 0.05)])
def test_a_95_percent_interval_covers_the_true_ratio_about_that_often_even_with_three_rounds(rounds, paired, drift):
    assert covered(1.1, rounds, 0.95, paired, drift) >= 0.925


def test_more_confidence_is_not_bought_for_nothing():
    """Of intervals that miss too seldom the test above would not tell."""
    assert covered(1.1, 6, 0.5, paired=False) <= 0.75


def test_a_against_a_is_seldom_significant():
    assert 1 - covered(1.0, 6, 0.99, paired=False) <= 0.02


def test_equal_samples_have_an_interval_of_one_point():
    a, b = np.full((3, 4), 100.0), np.full((5, 2), 80.0)
    assert ratio_interval(a, b, 0.99, paired=False) == pytest.approx((0.8, 0.8), rel=1e-12)


def test_rounds_that_are_all_like_one_another_but_one_follow_the_bootstrap_worked_out_by_hand():
    """Of 3 rounds at 1, 1 and e, a resample's median is e if at least two picks are the third: 7 of 27 times."""
    a, b = np.ones((3, 1)), np.array([[1.0], [1.0], [math.e]])
    share = 7 / 27
    reach = stats.t.ppf(0.975, 2) * math.sqrt(share * (1 - share) * 3 / 2)
    low, high = interval(a, b, 0.95, paired=False)
    assert math.log(high) == pytest.approx(reach, rel=0.06)  # a bootstrap of 1000
    assert math.log(low) == pytest.approx(-reach, rel=0.06)


def test_what_slows_both_sides_of_a_round_cancels_only_where_they_were_paired():
    rng = np.random.default_rng(0)
    drift = np.linspace(1.0, 1.6, 6)[:, None]
    a, b = noise(rng, 6, between=0, within=0.002) * drift, noise(rng, 6, between=0, within=0.002, us=103.0) * drift
    paired, apart = (interval(a, b, 0.99, paired=paired) for paired in (True, False))
    assert paired[0] > 1.01
    assert paired[1] < 1.05
    assert apart[0] < 0.9
    assert apart[1] > 1.2


def test_swapping_the_sides_inverts_the_interval():
    rng = np.random.default_rng(1)
    a, b = noise(rng, 5), noise(rng, 5, us=130.0)
    low, high = interval(a, b, 0.95, paired=True)
    assert interval(b, a, 0.95, paired=True) == pytest.approx((1 / high, 1 / low), rel=1e-12)


def test_equal_samples_and_seeds_give_equal_intervals():
    a, b = noise(np.random.default_rng(2), 4), noise(np.random.default_rng(3), 4)
    assert ratio_interval(a, b, 0.95, False, seed=5) == ratio_interval(a, b, 0.95, False, seed=5)
    assert ratio_interval(a, b, 0.95, False, seed=5) != ratio_interval(a, b, 0.95, False, seed=6)


def test_fewer_than_three_rounds_have_no_spread():
    three, two = np.full((3, 4), 1.0), np.full((2, 4), 1.0)
    assert ratio_interval(three, two, 0.95, paired=False) is None
    assert ratio_of_intervals((1.0, (0.9, 1.1), 3), (1.0, (0.9, 1.1), 1), 0.95) is None


def test_from_rows_alone_the_interval_is_welchs():
    """Each row's own interval is Student's t of its own rounds."""
    a, b = (100.0, (98.0, 102.0), 6), (120.0, (110.0, 131.0), 4)
    va, vb = ((math.log(high / low) / (2 * stats.t.ppf(0.975, n - 1))) ** 2 for _, (low, high), n in (a, b))
    freedom = (va + vb) ** 2 / (va**2 / 5 + vb**2 / 3)
    reach = stats.t.ppf(0.995, freedom) * math.sqrt(va + vb)
    assert ratio_of_intervals(a, b, 0.99) == pytest.approx((1.2 * math.exp(-reach), 1.2 * math.exp(reach)), rel=1e-9)


@pytest.mark.parametrize(("rounds", "within"), [(3, 0.02), (6, 0.005), (40, 0.002)])
def test_rows_and_samples_agree_however_few_the_rounds(rounds, within):
    """Both know the same spread between rounds: what a row keeps is enough, but for the chance of the resampling."""
    from experiments.measuring.statistics import summarise

    rng = np.random.default_rng(4)
    a, b = noise(rng, rounds), noise(rng, rounds, us=110.0)
    rows = [(s.p50, (exact(s.ci_low), exact(s.ci_high)), s.rounds) for s in map(summarise, (a, b))]
    by_samples, by_rows = ratio_interval(a, b, 0.99, False), ratio_of_intervals(rows[0], rows[1], 0.99)
    assert by_samples is not None
    assert by_rows == pytest.approx(by_samples, rel=within)


def test_an_interval_of_one_round_is_refused():
    with pytest.raises(ValueError, match="an interval needs at least 2 rounds; got 1"):
        median_interval(np.ones((1, 8)), 0.95)
    with pytest.raises(ValueError, match="samples must hold finite samples > 0"):
        median_interval(np.zeros((3, 8)), 0.95)


@pytest.mark.parametrize(
    ("a", "b", "confidence", "paired", "said"),
    [
        (np.ones(3), np.ones((3, 1)), 0.95, False, "a must hold finite samples > 0"),
        (np.ones((3, 1)), np.zeros((3, 1)), 0.95, False, "b must hold finite samples > 0"),
        (np.ones((3, 1)), np.full((3, 1), np.nan), 0.95, False, "b must hold finite"),
        (np.ones((3, 1)), np.ones((4, 1)), 0.95, True, "same rounds on both sides; got 3 and 4"),
        (np.ones((3, 1)), np.ones((3, 1)), 95, False, "confidence must lie between 0 and 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(a, b, confidence, paired, said):
    with pytest.raises(ValueError, match=said):
        ratio_interval(a, b, confidence, paired)


# one series beside the others of its race


def race(rng, rounds, times, between=0.2):
    """Samples of several series whose rounds share a level: a machine that is now slow and now quick."""
    level = np.exp(between * rng.standard_normal((rounds, 1)))
    return [level * noise(rng, rounds, between=0.0, us=us) for us in times]


def relative(a, b, which):
    """What must be there."""
    found = relative_ratio(a, b, which, 0.99)
    assert found is not None
    return found


def test_what_all_series_of_a_race_share_cancels():
    """All are 1.3 times as long in b, the second of three 1.2 times that: its interval is Welch's of the logs."""
    rng = np.random.default_rng(3)
    a, b = race(rng, 8, [100.0, 50.0, 20.0]), race(rng, 6, [130.0, 78.0, 26.0])
    ratio, (low, high) = relative(a, b, 1)
    ours, theirs = (
        [
            math.log(np.median(x) ** 2 / np.median(y) / np.median(z)) / 2
            for x, y, z in zip(s[1], s[0], s[2], strict=True)
        ]
        for s in (a, b)
    )
    welch = stats.ttest_ind(theirs, ours, equal_var=False).confidence_interval(0.99)
    assert exact(ratio) == pytest.approx(math.exp(np.mean(theirs) - np.mean(ours)))
    assert (low, high) == pytest.approx((math.exp(welch.low), math.exp(welch.high)))
    assert 1.19 < low < 1.2 < high < 1.21
    plain = interval(a[1], b[1], 0.99, paired=False)
    assert math.log(plain[1] / plain[0]) > 10 * math.log(high / low)  # by itself it says little on such a machine
    for other in (0, 2):
        assert relative(a, b, other)[0] == pytest.approx(1.2**-0.5, rel=0.01)


def test_one_of_four_that_changed_leaves_the_others_as_they_are():
    rng = np.random.default_rng(3)
    a, b = race(rng, 8, [100.0, 50.0, 20.0, 10.0]), race(rng, 8, [130.0, 65.0, 26.0, 26.0])
    assert [relative(a, b, which)[0] for which in range(4)] == pytest.approx([1.0, 1.0, 1.0, 2.0], rel=0.01)


def test_a_race_of_two_rounds_has_no_interval():
    rng = np.random.default_rng(3)
    assert relative_ratio(race(rng, 2, [1.0, 2.0]), race(rng, 5, [1.0, 2.0]), 0, 0.99) is None
