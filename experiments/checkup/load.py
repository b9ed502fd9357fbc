"""Other work on the machine: it steals time from every sample, and makes threads wait for each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.checkup.check import Check, percent, size
from experiments.checkup.gpu import Gpu

BUSY_NOTE, BUSY_PROBLEM = 0.05, 0.20  # share of all CPUs that others use
STEAL_NOTE, STEAL_PROBLEM = 0.01, 0.05  # share of the time that a hypervisor gave to others
GPU_BUSY = 0.05


@dataclass(frozen=True)
class Load:
    """Shares of all CPUs over ``seconds`` in which this process slept. ``culprits``: (name, pid, CPUs used).

    ``quota``: CPUs that the container may use, None without a limit; ``quota_hits``: periods in which it was stopped,
    since its start and while it was looked at.
    """

    seconds: float
    cpus: int
    busy: float
    steal: float
    load_1min: float | None
    culprits: tuple[tuple[str, int, float], ...] = ()
    quota: float | None = None
    quota_hits: tuple[int, int] = (0, 0)


def check(seen: Load, threads: int | None, gpus: Sequence[Gpu]) -> list[Check]:
    """CPUs, hypervisor, quota (against the ``threads`` that torch would use) and GPUs."""
    return [_busy(seen), _steal(seen), *_quota(seen, threads), *(_gpu(gpu) for gpu in gpus)]


def _busy(seen: Load) -> Check:
    average = "" if seen.load_1min is None else f", load average {seen.load_1min:.2f}"
    said = f"{percent(seen.busy)} of {seen.cpus} CPUs over {seen.seconds:.1f} s{average}"
    if seen.busy < BUSY_NOTE:
        return Check("other load", "ok", said)
    whose = ", ".join(f"{name} (pid {pid}, {cpus:.2f} CPUs)" for name, pid, cpus in seen.culprits)
    advice = f"end or wait for {whose or 'what runs beside'}; medians rise and rows become bimodal"
    return Check("other load", "problem" if seen.busy >= BUSY_PROBLEM else "note", said, advice)


def _steal(seen: Load) -> Check:
    said = f"{percent(seen.steal)} of the time went to other virtual machines"
    if seen.steal < STEAL_NOTE:
        return Check("stolen time", "ok", said)
    advice = "measure at another hour or on a machine of your own; more rounds show it as a wider interval"
    return Check("stolen time", "problem" if seen.steal >= STEAL_PROBLEM else "note", said, advice)


def _quota(seen: Load, threads: int | None) -> list[Check]:
    if seen.quota is None:
        return []
    before, during = seen.quota_hits
    said = f"{seen.quota:.3g} CPUs for {threads or 'unknown'} threads; stopped in {before} periods, {during} just now"
    if during or (threads is not None and threads > seen.quota):
        advice = f"timer.threads={max(1, int(seen.quota))} or a larger quota: beyond it the kernel stops all threads"
        return [Check("cpu quota", "problem", said, advice)]
    if before:
        return [Check("cpu quota", "note", said, "it was reached before: leave a CPU of the quota free")]
    return [Check("cpu quota", "ok", said)]


def _gpu(gpu: Gpu) -> Check:
    busy = "" if gpu.busy is None else f"{percent(gpu.busy)} busy, "
    said = f"{busy}{len(gpu.others)} other processes"
    if not gpu.others and (gpu.busy or 0) < GPU_BUSY:
        return Check(f"{gpu.name}, other load", "ok", said)
    whose = ", ".join(f"pid {pid}" + (f" ({size(held)})" if held else "") for pid, held in gpu.others)
    working = (gpu.busy or 0) >= GPU_BUSY
    advice = f"end or wait for {whose or 'what runs there'}: they share bandwidth, cache and clocks"
    return Check(f"{gpu.name}, other load", "problem" if working else "note", said, advice)
