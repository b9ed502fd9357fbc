"""What a run says about its own time."""

import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.measuring.spent import Spent
from experiments.measuring.timed import Measured


def test_the_time_of_a_run_is_told_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s of samples, 1.5 s of calls before them, 2 s of sweeps, 0.5 s of filled memory, 10 s in all."""
    spent = Spent(start=100.0)
    rows = [
        SimpleNamespace(first_call_us=500_000.0, warmup_us=1e6),
        SimpleNamespace(first_call_us=None, warmup_us=None),
    ]
    spent.add(Measured(cast(Any, tuple(rows)), {"key": np.full((2, 3), 500_000.0)}, 500_000.0))
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    assert Spent(start=0.0).told(2.0) == ""
    parts = "samples 3 s (30%), warm-up 2 s (15%), sweeps 2 s (20%), filling memory 0 s (5%), all else 3 s (30%)"
    assert spent.told(2.0) == f"10 s: {parts}"
