"""Processors that run slower than they could, because of heat or power."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.checkup.check import Check
from experiments.checkup.gpu import Gpu
from experiments.measuring.clocks import HELD

POWER_CAP = 0x4  # NVML's bit of what is common under load; what a measurement must not run under: HELD


@dataclass(frozen=True)
class CpuThrottling:
    """Events of all cores and packages since the machine started, and while it was looked at; None: not readable."""

    since_start: int | None
    during: int | None


def check(seen: CpuThrottling, gpus: Sequence[Gpu]) -> list[Check]:
    """Throttled now is a problem; throttled once is a note."""
    return [_cpu(seen), *(_gpu(gpu) for gpu in gpus if gpu.reasons is not None)]


def _cpu(seen: CpuThrottling) -> Check:
    if seen.since_start is None:
        return Check("cpu throttling", "ok", "no counter to read here")
    said = f"{seen.since_start} events since start, {seen.during or 0} just now"
    if seen.during:
        return Check("cpu throttling", "problem", said, "let it cool, lower the load, mend the fan; then measure")
    if seen.since_start:
        advice = "it was too hot at some time: watch the drift check of long studies"
        return Check("cpu throttling", "note", said, advice)
    return Check("cpu throttling", "ok", said)


def _gpu(gpu: Gpu) -> Check:
    assert gpu.reasons is not None
    name, heat = f"{gpu.name}, throttling", "" if gpu.temperature is None else f", {gpu.temperature} C"
    bad = [word for bit, word in HELD.items() if gpu.reasons & bit]
    if bad:
        advice = "let it cool, or give it power: `nvidia-smi -q -d PERFORMANCE` tells more"
        return Check(name, "problem", f"{', '.join(bad)}{heat}", advice)
    if gpu.reasons & POWER_CAP:
        return Check(name, "note", f"at its power cap{heat}", "lock a lower clock (`nvidia-smi -lgc`) for steady times")
    return Check(name, "ok", f"none{heat}")
