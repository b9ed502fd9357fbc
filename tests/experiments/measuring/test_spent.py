"""What a run says about its own time."""

import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.measuring.spent import Spent
from experiments.measuring.timed import Measured


def test_samples_and_warm_up_are_told_apart_from_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s of samples, 1.5 s of calls before them, 10 s in all."""
    spent = Spent(start=100.0)
    rows = [
        SimpleNamespace(first_call_us=500_000.0, warmup_us=1e6),
        SimpleNamespace(first_call_us=None, warmup_us=None),
    ]
    spent.add(Measured(cast(Any, tuple(rows)), {"key": np.full((2, 3), 500_000.0)}))
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    assert str(Spent(start=0.0)) == ""
    assert str(spent) == "10 s: samples 3 s (30%), warm-up 2 s (15%), all else 6 s (55%)"
