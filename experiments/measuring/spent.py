"""Where the wall time of a run went: what was timed, what was run to warm up, and all the rest."""

import time
from dataclasses import dataclass, field

from experiments.measuring.timed import Measured


@dataclass
class Spent:
    """Seconds since it was made."""

    start: float = field(default_factory=time.monotonic)
    samples: float = 0.0
    warming: float = 0.0

    def add(self, measured: Measured) -> None:
        """Count what a point's samples, and the calls before them, took."""
        self.samples += sum(float(us.sum()) for us in measured.samples.values()) / 1e6
        self.warming += sum((row.first_call_us or 0.0) + (row.warmup_us or 0.0) for row in measured.rows) / 1e6

    def __str__(self) -> str:
        """In words, if anything was timed: the rest evicts caches, fills and proves them, and starts workers."""
        if not self.samples:
            return ""
        wall = time.monotonic() - self.start
        rest = wall - self.samples - self.warming
        parts = {"samples": self.samples, "warm-up": self.warming, "all else": rest}
        shares = ", ".join(f"{name} {seconds:.0f} s ({seconds / wall:.0%})" for name, seconds in parts.items())
        return f"{wall:.0f} s: {shares}"
