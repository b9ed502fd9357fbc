"""The clock that wall times are read from."""

from dataclasses import dataclass

from experiments.checkup.check import Check

FINE_NS = 1000.0  # a point of 100 us is then read to one percent
SLOW = ("hpet", "acpi_pm", "jiffies")


@dataclass(frozen=True)
class Stopwatch:
    """``step_ns``: the smallest step seen between two readings; ``call_ns``: what a reading costs (median)."""

    step_ns: float
    call_ns: float
    monotonic: bool
    source: str | None


def check(seen: Stopwatch) -> list[Check]:
    """A coarse clock rounds short points; a slow one is itself in every sample."""
    source = f", source {seen.source}" if seen.source else ""
    said = f"steps of {seen.step_ns:.0f} ns, {seen.call_ns:.0f} ns per reading{source}"
    if not seen.monotonic:
        return [
            Check(
                "clock", "problem", f"{said}; it ran backwards", "another clock source: kernel option clocksource=tsc"
            )
        ]
    if seen.step_ns > FINE_NS or seen.call_ns > FINE_NS or seen.source in SLOW:
        advice = "`echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource` as root, where offered"
        return [Check("clock", "note", said, advice)]
    return [Check("clock", "ok", said)]
