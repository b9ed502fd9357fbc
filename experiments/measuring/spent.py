"""Where the wall time of a run went: samples, what warmed up, touched memory, filled it or made it cold, the rest."""

import time
from dataclasses import dataclass, field

from experiments.measuring.bench import Benches
from experiments.measuring.timed import Measured


@dataclass
class Spent:
    """Seconds since it was made."""

    start: float = field(default_factory=time.monotonic)
    samples: float = 0.0
    warming: float = 0.0
    contact: float = 0.0
    filling: float = 0.0

    def add(self, measured: Measured) -> None:
        """Count what a point's samples, the calls before them, and its weights and caches took."""
        self.samples += sum(float(us.sum()) for us in measured.samples.values()) / 1e6
        self.warming += sum((row.first_call_us or 0.0) + (row.warmup_us or 0.0) for row in measured.rows) / 1e6
        self.contact += measured.contact_us / 1e6
        self.filling += measured.filled_us / 1e6

    def told(self, benches: Benches) -> str:
        """In words, if anything was timed: the rest starts workers, proves answers, and measures ceilings."""
        if not self.samples:
            return ""
        wall = time.monotonic() - self.start
        parts = {
            "samples": self.samples,
            "warm-up": self.warming,
            "first touch of memory": self.contact + benches.contact_s,
            "filling it": self.filling,
            "sweeps": benches.swept_s,
        }
        parts["all else"] = wall - sum(parts.values())
        shares = ", ".join(f"{name} {seconds:.0f} s ({seconds / wall:.0%})" for name, seconds in parts.items())
        return f"{wall:.0f} s: {shares}"
