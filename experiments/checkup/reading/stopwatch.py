"""Read the clock many times in a row."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments.checkup.reading.files import ROOT, text
from experiments.checkup.stopwatch import Stopwatch

READINGS = 20_000
SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"


def read(root: Path = ROOT, clock: Callable[[], int] = time.perf_counter_ns) -> Stopwatch:
    """Smallest step, cost of a reading (median), and whether it ever ran backwards."""
    seen = np.array([clock() for _ in range(READINGS)])
    steps = np.diff(seen)
    moved = steps[steps > 0]
    smallest = float(moved.min()) if moved.size else 1e9  # it never moved: coarser than all this took
    mean = float(seen[-1] - seen[0]) / (READINGS - 1)  # of a clock coarser than a reading the median step is 0
    cost = float(np.median(steps)) or mean
    return Stopwatch(smallest, cost, bool((steps >= 0).all()), text(root / SOURCE))
