"""Governor, turbo and span of the CPU's clock, as Linux shows them."""

from pathlib import Path

from experiments.checkup.frequency import Frequency
from experiments.checkup.reading.files import ROOT, number, text

CPUS = "sys/devices/system/cpu"


def read(root: Path = ROOT) -> Frequency:
    """All CPUs' governors, and the first one's span."""
    cpus = root / CPUS
    governors = {text(path) for path in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    low, high = (number(cpus / "cpu0/cpufreq" / f"cpuinfo_{end}_freq") for end in ("min", "max"))
    return Frequency(
        tuple(sorted(filter(None, governors))),
        _turbo(cpus),
        None if low is None else low / 1000,
        None if high is None else high / 1000,
    )


def _turbo(cpus: Path) -> bool | None:
    off, boost = number(cpus / "intel_pstate/no_turbo"), number(cpus / "cpufreq/boost")
    if off is not None:
        return off == 0
    return None if boost is None else boost == 1
