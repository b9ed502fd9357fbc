"""Ratios, what is significant, and what is a regression."""

import math
from typing import Any

import numpy as np
import pytest

from experiments.ratio import ratio_interval
from experiments.telling.comparing.verdict import overall
from tests.experiments.telling.comparing.runs import held, keep, point, samples, slower


def one(tmp_path, ratio, noise=0.01, threshold=0.05, **given):
    """The only compared point of two runs that differ by ``ratio``, and whether it is a regression."""
    here = point(**given)
    a = keep(tmp_path / "a", here, noise=noise)
    b = keep(tmp_path / "b", slower(here, ratio), noise=noise, seed=100)
    result = held(a, b, threshold=threshold)
    (compared,) = result.compared
    return compared, bool(result.regressions)


def test_ten_percent_slower_with_one_percent_noise_is_a_regression(tmp_path):
    compared, regressed = one(tmp_path, 1.10)
    assert compared.ratio == pytest.approx(1.10)
    assert compared.verdict == "slower"
    assert regressed


def test_three_percent_slower_is_significant_but_below_the_threshold(tmp_path):
    compared, regressed = one(tmp_path, 1.03, noise=0.002)
    assert compared.verdict == "slower"
    assert not regressed


def test_the_threshold_decides(tmp_path):
    assert one(tmp_path / "strict", 1.03, noise=0.002, threshold=0.02)[1]
    assert not one(tmp_path / "lax", 1.10, threshold=0.2)[1]


def test_ten_percent_slower_in_thirty_percent_noise_is_no_regression(tmp_path):
    compared, regressed = one(tmp_path, 1.10, noise=0.3)
    assert compared.verdict == "same"
    assert not regressed


def test_faster_is_never_a_regression(tmp_path):
    compared, regressed = one(tmp_path, 0.5)
    assert compared.verdict == "faster"
    assert compared.beyond(0.05)
    assert not regressed


@pytest.mark.parametrize(
    ("ratio", "noise", "beyond", "surely"),
    [
        (1.06, 0.002, True, True),
        (1.06, 0.02, True, False),
        (0.9, 0.002, True, True),
        (0.9, 0.06, True, False),
        (1.04, 0.002, False, False),
    ],
)
def test_beyond_the_threshold_by_the_median_or_by_the_whole_interval(tmp_path, ratio, noise, beyond, surely):
    compared, _ = one(tmp_path, ratio, noise=noise)
    assert compared.significant
    assert (compared.beyond(0.05), compared.surely_beyond(0.05)) == (beyond, surely)


def test_the_interval_is_that_of_the_samples_on_disk(tmp_path):
    compared, _ = one(tmp_path, 1.10)
    expected = ratio_interval(samples(100.0), samples(110.00000000000001, seed=100), 0.99, paired=False)
    assert compared.source == "samples"
    assert compared.interval == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("lost", ["a", "b"])
def test_without_raw_samples_of_a_side_the_rows_own_intervals_serve(tmp_path, lost):
    here = point()
    folders = {side: keep(tmp_path / side, slower(here, r), raw=side != lost) for side, r in (("a", 1.0), ("b", 1.2))}
    (compared,) = held(folders["a"], folders["b"]).compared
    assert compared.source == "rows"
    assert compared.verdict == "slower"
    assert compared.interval is not None
    assert compared.interval[0] < 1.2 < compared.interval[1]


def test_samples_that_are_not_this_rows_are_not_used(tmp_path):
    """A killed run leaves samples without their row: they lie where those of an older row are looked for."""
    a, b = keep(tmp_path / "a", point()), keep(tmp_path / "b", point())
    np.save(b / "gqa" / "samples" / f"{point().key}.npy", samples(500.0))
    (compared,) = held(a, b).compared
    assert compared.source == "rows"


def test_a_row_without_any_interval_is_undecided_and_never_significant(tmp_path):
    bare: dict[str, Any] = {"latency_us_ci_low": None, "latency_us_ci_high": None, "samples": 1, "rounds": 1}
    a = keep(tmp_path / "a", point(**bare), raw=False)
    b = keep(tmp_path / "b", point(us=900.0, **bare), raw=False)
    result = held(a, b)
    (compared,) = result.compared
    assert (compared.verdict, compared.interval, compared.source) == ("unknown", None, None)
    assert result.regressions == []


def test_series_that_took_turns_in_one_run_are_paired_and_others_are_not(tmp_path):
    run = tmp_path / "run"
    for backend, us in (("sdpa", 100.0), ("eager", 103.0)):
        drift = np.linspace(1.0, 1.6, 6)[:, None] / 1.3  # a machine that slows down over the rounds
        here = point(us=us, key=backend, interleave="resident", backend=backend, series=backend, rounds=6)
        keep(run, here)
        shaped = samples(1.0, noise=0.002, seed=int(us)) * drift
        np.save(run / backend / "samples" / f"{backend}.npy", us * shaped / np.median(shaped))
    (compared,) = held(run / "sdpa", run / "eager", across=("backend",)).compared
    assert compared.paired
    assert compared.verdict == "slower"  # 3 %, seen through a drift of 60 %
    other = keep(tmp_path / "other", point(us=100.0, key="sdpa", backend="sdpa", series="sdpa", interleave="resident"))
    assert not held(other, run / "sdpa").compared[0].paired


def test_a_run_against_itself_again_is_seldom_significant(tmp_path):
    rows = [point(context=2**k) for k in range(4, 20)] + [point("mla", context=2**k) for k in range(4, 20)]
    a, b = keep(tmp_path / "a", *rows, noise=0.05), keep(tmp_path / "b", *rows, noise=0.05, seed=1000)
    result = held(a, b, confidence=0.99)
    assert sum(compared.significant for compared in result.compared) <= 1  # of 32


def test_case_e16_gains_and_losses_do_not_hide_each_other(tmp_path):
    a = keep(tmp_path / "a", point(us=100.0), point(us=100.0, context=131072), point(us=100.0, context=4096))
    b = keep(tmp_path / "b", point(us=200.0), point(us=50.0, context=131072), seed=50)
    result = held(a, b)
    total = overall(result.compared)
    assert total.ratio == pytest.approx(1.0)
    assert (total.points, total.slower, total.faster) == (2, 1, 1)
    assert result.matched.count("measured") == 3


def test_the_mean_of_ratios_is_geometric(tmp_path):
    a = keep(tmp_path / "a", *(point(context=c) for c in (1, 2, 3)))
    b = keep(tmp_path / "b", *(point(context=c, us=us) for c, us in ((1, 200.0), (2, 100.0), (3, 400.0))))
    assert overall(held(a, b).compared).ratio == pytest.approx(math.pow(8, 1 / 3))
