"""Hardware counters, from which the bytes that a kernel really moved could be read."""

from dataclasses import dataclass

from experiments.checkup.check import Check


@dataclass(frozen=True)
class Counters:
    """``paranoid``: Linux's perf_event_paranoid. ``error``: what opening a cycle counter said; None: it opened.

    ``gpu_admin_only``: whether the NVIDIA driver keeps its counters to administrators.
    """

    paranoid: int | None
    error: str | None
    gpu_admin_only: bool | None = None


def check(seen: Counters) -> list[Check]:
    """Without counters rows have no moved_bytes; times are as good."""
    found = [_cpu(seen)]
    if seen.gpu_admin_only:
        advice = (
            "as root: modprobe option NVreg_RestrictProfilingToAdminUsers=0; else moved_bytes stays empty on the GPU"
        )
        found.append(Check("gpu counters", "note", "for administrators only", advice))
    return found


def _cpu(seen: Counters) -> Check:
    level = f"perf_event_paranoid {'unknown' if seen.paranoid is None else seen.paranoid}"
    if seen.error is None:
        return Check("hardware counters", "ok", f"readable; {level}")
    advice = "moved_bytes stays empty; "
    if seen.error in ("EACCES", "EPERM"):
        advice += "`sysctl kernel.perf_event_paranoid=1`, or a container with CAP_PERFMON and perf_event_open allowed"
    else:
        advice += "this machine (often a virtual one) offers none"
    return Check("hardware counters", "note", f"not readable: {seen.error}; {level}", advice)
