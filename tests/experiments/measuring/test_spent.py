"""What a run says about its own time."""

import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from experiments.measuring.spent import Spent
from experiments.measuring.timed import Measured


def test_the_time_of_a_run_is_told_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 s of samples, 1.5 of calls before them, 0.5 + 1 of new memory, 0.4 that filled it, 2 of sweeps; 10 in all."""
    spent = Spent(start=100.0)
    rows = [
        SimpleNamespace(first_call_us=500_000.0, warmup_us=1e6),
        SimpleNamespace(first_call_us=None, warmup_us=None),
    ]
    spent.add(Measured(cast(Any, tuple(rows)), {"key": np.full((2, 3), 500_000.0)}, 500_000.0, 400_000.0))
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    benches = cast(Any, SimpleNamespace(swept_s=2.0, contact_s=1.0))
    assert Spent(start=0.0).told(benches) == ""
    assert spent.told(benches) == (
        "10 s: samples 3 s (30%), warm-up 2 s (15%), first touch of memory 2 s (15%), filling it 0 s (4%), "
        "sweeps 2 s (20%), all else 2 s (16%)"
    )
