"""What all points of a run share: a device, its clock and its ceilings, each measured once and only when needed."""

from dataclasses import dataclass, field
from functools import cached_property

from experiments.measuring.ceilings import Ceilings, Sweep, measure_ceilings, measure_matmul
from experiments.measuring.device import Device
from experiments.measuring.series import Series
from experiments.measuring.timing import Timer, make_timer
from variants.contract.dtype import Dtype


@dataclass
class Bench:
    """One device read by one clock on one number of threads. ``matmuls``: TFLOP/s of the dtypes asked for so far."""

    device: Device
    timer: Timer
    matmuls: dict[Dtype, float] = field(default_factory=dict)

    @cached_property
    def sweep(self) -> Sweep:
        """The buffer that evicts caches."""
        return Sweep(self.device)

    @cached_property
    def ceilings(self) -> Ceilings:
        """Read ceilings in GB/s, cold and cache-resident."""
        return self.fresh_ceilings()

    def fresh_ceilings(self) -> Ceilings:
        """The read ceilings measured now, whatever was found before."""
        return measure_ceilings(self.sweep, self.timer)

    def raise_ceilings(self) -> None:
        """Measure the read ceilings once more and keep the best of both: other load can only make them too low."""
        self.ceilings = self.ceilings.best_of(self.fresh_ceilings())

    def matmul_tflops(self, dtype: Dtype) -> float:
        """Matmul ceiling of one dtype in TFLOP/s."""
        if dtype not in self.matmuls:
            self.matmuls[dtype] = measure_matmul(dtype, self.device, self.timer)
        return self.matmuls[dtype]


class Benches:
    """The benches of a run, one per (device, timer, threads)."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str, int], Bench] = {}

    def of(self, series: Series, device: Device, threads: int) -> Bench:
        """The bench that fits a series; ValueError if its timer needs another device."""
        key = (device.kind, series.timer.kind, threads)
        if key not in self._made:
            self._made[key] = Bench(device, make_timer(series.timer.kind, device.kind, device.synchronize))
        return self._made[key]
