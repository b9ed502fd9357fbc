"""What holds clocks down while samples are taken: heat and power, as Linux counts and an NVIDIA driver tells them.

Where nothing can be read (most virtual machines) every field is None, which is no finding.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path("/")
CPUS = "sys/devices/system/cpu"
LOOKED_AT = 8  # CPUs whose clock is read: each reading may wake a core
# NVML's bits (nvml.h, clocks event reasons) of what a measurement must not run under; a power cap is not among them
HELD = {0x8: "hardware slowdown", 0x20: "software thermal", 0x40: "hardware thermal", 0x80: "power brake"}


@dataclass(frozen=True)
class Clocks:
    """One look. ``events``: CPU throttle events since start; ``held``: what holds a GPU's clock down now; ``mhz``."""

    events: int | None = None
    held: tuple[str, ...] | None = None
    mhz: float | None = None


UNREADABLE = Clocks()


def look(kind: str, root: Path = ROOT) -> Clocks:
    """The clocks of a device: ``cpu``, or ``cuda`` for the GPU that torch uses. Never raises where it cannot read."""
    return _gpu() if kind == "cuda" else Clocks(throttle_events(root), None, _cpu_mhz(root))


def throttle_events(root: Path = ROOT) -> int | None:
    """Heat events of all cores and packages since start; None where they are not counted."""
    counts = [
        count for path in _files(root, "thermal_throttle/*_throttle_count") if (count := _number(path)) is not None
    ]
    return sum(counts) if counts else None


def gpu_clocks(nvml: Any, handle: Any) -> Clocks:
    """The same of a GPU, from a pynvml that was initialised."""
    try:
        reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
        mhz = float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))
    except (nvml.NVMLError, AttributeError):
        return UNREADABLE
    return Clocks(None, tuple(word for bit, word in HELD.items() if reasons & bit), mhz)


def _cpu_mhz(root: Path) -> float | None:
    """Mean clock of the first CPUs."""
    files = _files(root, "cpufreq/scaling_cur_freq")[:LOOKED_AT]
    found = [number / 1000 for path in files if (number := _number(path)) is not None]
    return sum(found) / len(found) if found else None


@cache
def _files(root: Path, below: str) -> tuple[Path, ...]:
    return tuple(sorted((root / CPUS).glob(f"cpu[0-9]*/{below}")))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _gpu() -> Clocks:
    found = _nvml()
    return UNREADABLE if found is None else gpu_clocks(*found)


@cache
def _nvml() -> tuple[Any, Any] | None:
    """pynvml and the handle of torch's first GPU, however the driver numbers it; None where it does not answer."""
    try:
        nvml: Any = import_module("pynvml")
        torch: Any = import_module("torch")
        nvml.nvmlInit()
        return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    except Exception:  # no driver, no such GPU, a partition of one: whatever it is, nothing can be read
        return None
