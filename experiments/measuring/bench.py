"""What all points of a run share: a device, its clock and its ceilings, each measured once and only when needed.

The run has it, not its workers: one sweep evicts the caches of all, and one set of ceilings holds for every row.
"""

import time
from dataclasses import dataclass, field
from functools import cached_property

from experiments.measuring.ceilings import Ceilings, measure_ceilings, measure_matmul
from experiments.measuring.device import Device
from experiments.measuring.row import Where
from experiments.measuring.sweep import Sweep
from experiments.measuring.timing import Timer, fixed_threads, make_timer
from variants.contract.dtype import Dtype
from variants.pages import contact_s


@dataclass
class Bench:
    """One device read by one clock on one number of threads (None: as many as there are now).

    ``matmuls``: TFLOP/s of the dtypes asked for so far. ``swept_s``: seconds that went into evicting. ``contact_s``:
    seconds that went into the first touch of the memory that is read for it.
    """

    device: Device
    timer: Timer
    threads: int | None = None
    matmuls: dict[Dtype, float] = field(default_factory=dict)
    swept_s: float = 0.0
    contact_s: float = 0.0

    @cached_property
    def sweep(self) -> Sweep:
        """The buffer that evicts caches."""
        before = contact_s()
        sweep = Sweep(self.device)
        self.contact_s += contact_s() - before
        return sweep

    def evict(self, already: int = 0) -> int:
        """Push everything out of the caches, which ``already`` so many bytes have gone through; bytes read for it."""
        sweep, start = self.sweep, time.perf_counter()
        with fixed_threads(self.threads):
            swept = sweep(already)
        self.device.synchronize()
        self.swept_s += time.perf_counter() - start
        return swept

    @cached_property
    def ceilings(self) -> Ceilings:
        """Read ceilings in GB/s, cold and cache-resident."""
        return self._measured()

    def again(self) -> tuple[Ceilings, Ceilings]:
        """Measure the read ceilings once more: those that held so far, and the new ones.

        From now on the higher of both holds: other load on the machine can only make them too low.
        """
        before, found = self.ceilings, self._measured()
        self.ceilings = before.best_of(found)
        return before, found

    def matmul_tflops(self, dtype: Dtype) -> float:
        """Matmul ceiling of one dtype in TFLOP/s."""
        if dtype not in self.matmuls:
            with fixed_threads(self.threads):
                self.matmuls[dtype] = measure_matmul(dtype, self.device, self.timer)
        return self.matmuls[dtype]

    def _measured(self) -> Ceilings:
        with fixed_threads(self.threads):
            return measure_ceilings(self.sweep, self.timer)


class Benches:
    """The benches of a run, one per (device, timer, threads)."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, int], Bench] = {}

    @property
    def swept_s(self) -> float:
        """Seconds that went into evicting caches."""
        return sum(bench.swept_s for bench in self._made.values())

    @property
    def contact_s(self) -> float:
        """Seconds that went into the first touch of the memory that evicts."""
        return sum(bench.contact_s for bench in self._made.values())

    def of(self, where: Where) -> Bench:
        """The bench that fits a point; ValueError if its timer needs another device."""
        device, timer = where.device, where.series.timer
        assert device is not None
        key = (device.kind, timer.kind, where.threads)
        if key not in self._made:
            clock = make_timer(timer.kind, device.kind, device.synchronize)
            self._made[key] = Bench(device, clock, where.threads)
        return self._made[key]
