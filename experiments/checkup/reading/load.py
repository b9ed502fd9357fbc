"""Who uses the CPUs while this process sleeps; throttling is counted over the same moment."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from experiments.checkup.load import Load
from experiments.checkup.reading.files import ROOT, cgroup_folders, number, text
from experiments.checkup.throttling import CpuThrottling
from experiments.measuring.clocks import throttle_events

SECONDS = 0.5
CULPRITS, WORTH = 3, 0.02  # processes named, and the CPUs that one must use to be named

Spent = dict[tuple[int, str], float]  # CPU seconds of each (pid, name)


@dataclass(frozen=True)
class _Moment:
    """Counters at one time: seconds of all CPUs, throttle and quota events."""

    used: float
    stolen: float
    total: float
    throttled: int | None
    quota_hits: int


def read(root: Path = ROOT, sleep: Callable[[float], None] = time.sleep) -> tuple[Load, CpuThrottling]:
    """Look twice, with a pause between; going through all processes is work too, and lies outside of it."""
    spent_before, start = _processes(), time.monotonic()
    before = _look(root)
    sleep(SECONDS)
    after, seconds = _look(root), time.monotonic() - start
    spent = _processes()
    total = max(after.total - before.total, 1e-9)
    load = Load(
        seconds=seconds,
        cpus=psutil.cpu_count() or 1,
        busy=max(0.0, after.used - before.used) / total,
        steal=max(0.0, after.stolen - before.stolen) / total,
        load_1min=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        culprits=_culprits(spent_before, spent, seconds),
        quota=quota(root),
        quota_hits=(before.quota_hits, after.quota_hits - before.quota_hits),
    )
    during = None if after.throttled is None else after.throttled - (before.throttled or 0)
    return load, CpuThrottling(after.throttled, during)


def quota(root: Path = ROOT) -> float | None:
    """CPUs that the tightest control group around this process allows; None without a limit."""
    found = [limit for folder in cgroup_folders("cpu", root) if (limit := _quota(folder)) is not None]
    return min(found, default=None)


def _look(root: Path) -> _Moment:
    times = psutil.cpu_times()
    stolen = getattr(times, "steal", 0.0)
    waiting = times.idle + getattr(times, "iowait", 0.0)
    total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # guest is in user already
    hits = (_stopped(folder) for folder in cgroup_folders("cpu", root))
    return _Moment(total - waiting - stolen, stolen, total, throttle_events(root), max(hits, default=0))


def _processes() -> Spent:
    found = {}
    for process in psutil.process_iter(["pid", "name", "cpu_times"]):
        seen = process.info
        if seen["cpu_times"] is not None and seen["pid"] != os.getpid():
            found[seen["pid"], seen["name"] or "unknown"] = seen["cpu_times"].user + seen["cpu_times"].system
    return found


def _culprits(before: Spent, after: Spent, seconds: float) -> tuple[tuple[str, int, float], ...]:
    used = {who: (after[who] - spent) / seconds for who, spent in before.items() if who in after}
    most = sorted(used.items(), key=lambda item: -item[1])[:CULPRITS]
    return tuple((name, pid, cpus) for (pid, name), cpus in most if cpus >= WORTH)


def _quota(folder: Path) -> float | None:
    both = (text(folder / "cpu.max") or "").split()  # version 2: "200000 100000" or "max 100000"
    if len(both) == 2 and both[0] != "max":
        return int(both[0]) / int(both[1])
    allowed, period = number(folder / "cpu.cfs_quota_us"), number(folder / "cpu.cfs_period_us")
    return allowed / period if allowed and period and allowed > 0 else None


def _stopped(folder: Path) -> int:
    pairs = (line.split() for line in (text(folder / "cpu.stat") or "").splitlines())
    return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == "nr_throttled"), 0)
