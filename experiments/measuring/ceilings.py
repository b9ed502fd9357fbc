"""What this device really reads and multiplies per second: the roof every row is held against.

A published peak is not a roof: the best of several read-only kernels is, measured on as much memory as evicts the
last-level cache, and once more on buffers that stay in it for rows that say ``warm``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.measuring.device import Device
from experiments.measuring.sweep import ROW, Sweep
from experiments.measuring.timing import Call, Timer
from variants.contract.dtype import Dtype
from variants.noise import noise_
from variants.view import TORCH_DTYPES

RESIDENT_SIZES = (2**20, 2**23, 2**25)  # bytes: a core's share, L2, L3 or a GPU's L2
REPEATS = 5
LEAST_US = 50_000  # short kernels are repeated for at least this long


@dataclass(frozen=True)
class Ceilings:
    """Decimal GB/s of the best read-only kernel, cold and cache-resident, with the kernel's name."""

    cold_gbps: float
    cold_kernel: str
    resident_gbps: float
    resident_kernel: str

    def at(self, temperature: str, io_bytes: int, cache: int | None) -> float:
        """GB/s that a row of this temperature is held against.

        A warm row finds in the last-level cache (``cache`` bytes; None: unknown) at most what fits there; the rest of
        its ``io_bytes`` comes from memory, however often they are repeated.
        """
        if temperature == "cold":
            return self.cold_gbps
        if cache is None or io_bytes <= cache:
            return self.resident_gbps
        return io_bytes / (cache / self.resident_gbps + (io_bytes - cache) / self.cold_gbps)

    def best_of(self, other: "Ceilings") -> "Ceilings":
        """The higher of two measurements, each side with its kernel."""
        cold = max((c.cold_gbps, c.cold_kernel) for c in (self, other))
        return Ceilings(*cold, *max((c.resident_gbps, c.resident_kernel) for c in (self, other)))


def measure_ceilings(sweep: Sweep, timer: Timer) -> Ceilings:
    """The best read kernel over the sweep's buffer, and over buffers that fit in cache."""
    cold = max(_rates(sweep.buffer, timer))
    sizes = [s // 4 for s in RESIDENT_SIZES if s <= sweep.bytes] or [len(sweep.buffer)]
    resident = max(rate for size in sizes for rate in _rates(sweep.buffer[:size], timer))
    return Ceilings(*cold, *resident)


def measure_matmul(dtype: Dtype, device: Device, timer: Timer) -> float:
    """TFLOP/s of a square product of noise, the best of a few sizes."""
    sizes = (4096, 8192) if device.kind == "cuda" else (1024, 2048)
    return max(_matmul_rate(size, dtype, device, timer) for size in sizes)


def _rates(buffer: Tensor, timer: Timer) -> Iterator[tuple[float, str]]:
    for name, kernel in _read_kernels(buffer):
        yield buffer.nbytes / _best(kernel, timer) / 1e3, name


def _read_kernels(buffer: Tensor) -> list[tuple[str, Callable[[], Tensor]]]:
    """Read-only passes, each touching every byte once."""
    matrix, vector = buffer.view(-1, ROW // 4), buffer[: ROW // 4]
    return [
        ("sum", buffer.sum),
        ("max", buffer.amax),
        ("dot", lambda: torch.dot(buffer, buffer)),
        ("matvec", lambda: torch.mv(matrix, vector)),
    ]


def _matmul_rate(size: int, dtype: Dtype, device: Device, timer: Timer) -> float:
    a, b = (noise_(torch.empty(size, size, dtype=TORCH_DTYPES[dtype], device=device.torch), seed) for seed in (1, 2))
    return 2 * size**3 / _best(lambda: a @ b, timer) / 1e6


def _best(kernel: Call, timer: Timer) -> float:
    """Shortest of several runs in microseconds: a ceiling is what the hardware can do, not what it did on average."""
    first = timer.time(kernel)
    repeats = min(max(REPEATS, int(LEAST_US / first)), 200)
    return min(timer.time(kernel) for _ in range(repeats))
