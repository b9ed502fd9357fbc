"""Fits and exponents of times whose growth is known."""

import numpy as np
import pytest

from experiments.telling.growth import cumulative, exponents, fit_quadratic, fit_rates, fixed_cost

TOKENS = (128, 256, 512, 1024, 2048, 4096)


@pytest.mark.parametrize(("a", "b", "c"), [(500.0, 2.0, 0.003), (0.0, 0.25, 0.0), (9.0, 0.0, 1e-4), (50.0, 3.0, -1e-4)])
def test_a_fit_recovers_what_the_times_were_made_of(a: float, b: float, c: float) -> None:
    fit = fit_quadratic(TOKENS, [a + b * t + c * t * t for t in TOKENS])
    assert fit is not None
    assert (fit.a, fit.b, fit.c) == pytest.approx((a, b, c), rel=1e-6, abs=1e-9)
    assert fit.worst < 1e-9


def test_a_fit_says_how_far_it_is_off() -> None:
    times = [10.0 + t for t in TOKENS]
    times[2] *= 1.2
    fit = fit_quadratic(TOKENS, times)
    assert fit is not None
    assert 0.05 < fit.worst < 0.2


def test_two_contexts_are_too_few_for_three_terms() -> None:
    assert fit_quadratic((128, 256), (1.0, 2.0)) is None
    assert fit_quadratic((128, 128, 256), (1.0, 1.0, 2.0)) is None


def test_exponents_of_powers_are_the_powers() -> None:
    t = np.array(TOKENS, dtype=float)
    assert exponents(TOKENS, 7 * t) == pytest.approx(np.ones(5))
    assert exponents(TOKENS, 0.1 * t**2) == pytest.approx(2 * np.ones(5))
    assert exponents(TOKENS, np.full(6, 3.0)) == pytest.approx(np.zeros(5))
    assert exponents((1, 3), (1.0, 9.0)) == pytest.approx([2.0])


def test_a_fixed_cost_is_what_does_not_follow_the_floor() -> None:
    floors = [10.0 * t for t in (1, 2, 4, 8)]
    assert fixed_cost([30 + 1.5 * f for f in floors], floors) == pytest.approx(30)
    assert fixed_cost([2 * f for f in floors], floors) == pytest.approx(0, abs=1e-9)
    assert fixed_cost([3 * f - 5 for f in floors], floors) == 0  # none is negative
    assert fixed_cost([7.0], [1.0]) == 0  # one point cannot tell


def test_nothing_is_faster_than_its_floor_so_a_flat_excess_is_a_fixed_cost() -> None:
    assert fixed_cost([15.0, 15.1, 15.2], [5.0, 5.3, 5.6]) == pytest.approx(9.8, abs=0.3)


FLOORS = [5.0 * t + 0.001 * t**2 for t in TOKENS]


def test_work_that_grows_with_tokens_and_with_their_square_has_a_rate_each() -> None:
    """A kernel whose attention reaches a seventh of the ceiling, projections two thirds, with 900 us of its own."""
    times = [900 + 1.5 * 5.0 * t + 7 * 0.001 * t**2 for t in TOKENS]
    rates = fit_rates(TOKENS, times, FLOORS)
    assert rates is not None
    assert (rates.fixed, rates.linear, rates.square) == pytest.approx((900, 1.5, 7))
    assert rates.times == pytest.approx(times)


def test_no_work_is_faster_than_its_floor() -> None:
    rates = fit_rates(TOKENS, [0.5 * f for f in FLOORS], FLOORS)
    assert rates is not None
    assert (rates.fixed, rates.linear, rates.square) == pytest.approx((0, 1, 1), abs=1e-3)


def test_rates_need_four_contexts_and_counts_that_are_two_powers() -> None:
    assert fit_rates(TOKENS[:3], FLOORS[:3], FLOORS[:3]) is None
    windowed = [5.0 * t + 0.001 * t * min(t, 1024) for t in TOKENS]
    assert fit_rates(TOKENS, windowed, windowed) is None
    linear = [5.0 * t for t in TOKENS]
    assert fit_rates(TOKENS, linear, linear) is None


def test_steps_are_added_up_token_by_token() -> None:
    """1 + 2 + ... from prefix 2 on, straight between the measured prefixes."""
    assert cumulative((2, 4, 7), (2.0, 4.0, 7.0)) == pytest.approx([2, 2 + 3 + 4, 2 + 3 + 4 + 5 + 6 + 7])
    assert cumulative((5,), (3.0,)) == pytest.approx([3.0])
