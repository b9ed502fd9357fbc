"""What is said where the machine at the end is not the machine of the beginning."""

import pytest

from experiments.measuring.ceilings import Ceilings
from experiments.measuring.drift import compare_ceilings, few_rounds
from experiments.measuring.series import TimerChoice


@pytest.mark.parametrize(("end", "holds"), [(104.9, True), (105.1, False), (95.3, True), (95.1, False)])
def test_five_percent_either_way_is_no_drift(end: float, holds: bool) -> None:
    cold, resident = compare_ceilings(Ceilings(100.0, "sum", 900.0, "sum"), Ceilings(end, "dot", 900.0, "sum"))
    assert (cold.holds, resident.holds) == (holds, True)
    assert f"100 GB/s at the start, {end:.4g} at the end, x{end / 100:.3f}" in str(cold)
    assert "FAILED" not in str(cold)  # it quarantines no row


def test_the_repeat_takes_three_rounds_of_the_same_clock() -> None:
    asked = TimerChoice("wall", 6, 8, 2, max_rounds=16, ci_width=0.04, budget_s=30)
    few = few_rounds(asked)
    assert (few.rounds, few.max_rounds) == (3, 3)
    assert (few.kind, few.replicas, few.threads) == ("wall", 8, 2)
