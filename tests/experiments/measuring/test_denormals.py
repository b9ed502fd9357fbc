"""Numbers too small to be normal are zero inside, and themselves before and after."""

import pytest
import torch

from experiments.measuring.denormals import flushed

SMALL = torch.tensor([1e-30])


def tiny() -> float:
    return float(SMALL * 1e-10)


def failing() -> None:
    with flushed():
        assert tiny() == 0.0
        raise ZeroDivisionError


def test_they_are_zero_inside_alone_whatever_happens_there() -> None:
    if not torch.set_flush_denormal(False):
        pytest.skip("this processor cannot")
    with pytest.raises(ZeroDivisionError):
        failing()
    assert tiny() == pytest.approx(1e-40, rel=1e-3)
