"""Clocks that may change while a series is measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.checkup.check import Check
from experiments.checkup.gpu import Gpu

STEADY = ("performance", "userspace")
SET_BY_USER = 0x2  # NVML: the clock is where applications asked for it


@dataclass(frozen=True)
class Frequency:
    """``governors``: the different ones of all CPUs; empty: Linux tells nothing. ``turbo``: None where unknown."""

    governors: tuple[str, ...]
    turbo: bool | None
    min_mhz: float | None = None
    max_mhz: float | None = None


def check(seen: Frequency, gpus: Sequence[Gpu]) -> list[Check]:
    """The CPU's governor and turbo, and each GPU's clock."""
    return [_cpu(seen), *(_gpu(gpu) for gpu in gpus if gpu.sm_mhz is not None)]


def _cpu(seen: Frequency) -> Check:
    if not seen.governors:
        advice = "nothing to set from here; interleaved rounds and the interval tell whether the clock drifted"
        return Check("cpu clock", "note", "governor not readable (often a virtual machine)", advice)
    span = f", {seen.min_mhz:.0f} to {seen.max_mhz:.0f} MHz" if seen.min_mhz and seen.max_mhz else ""
    said = f"governor {', '.join(seen.governors)}, turbo {_switch(seen.turbo)}{span}"
    todo = []
    if any(governor not in STEADY for governor in seen.governors):
        todo.append("`cpupower frequency-set -g performance`")
    if seen.turbo:
        todo.append("turbo off for steady clocks: write 1 to intel_pstate/no_turbo, or 0 to cpufreq/boost")
    return Check("cpu clock", "note", said, "; ".join(todo)) if todo else Check("cpu clock", "ok", said)


def _gpu(gpu: Gpu) -> Check:
    said = f"SM {gpu.sm_mhz} MHz now, at most {gpu.max_sm_mhz or 'unknown'} MHz"
    if gpu.reasons is not None and gpu.reasons & SET_BY_USER:
        return Check(f"{gpu.name}, clock", "ok", f"{said}, set by a user")
    advice = "`nvidia-smi -lgc MHZ` (as root) locks it; else the drift check says what changed"
    return Check(f"{gpu.name}, clock", "note", f"{said}, not locked", advice)


def _switch(on: bool | None) -> str:
    return "unknown" if on is None else "on" if on else "off"
