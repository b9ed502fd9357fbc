"""Judge a machine by what was read of it: all that the doctor says."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.checkup import (
    backends,
    barrier,
    caches,
    compiler,
    counters,
    disk,
    frequency,
    gpu,
    load,
    memory,
    pages,
    processors,
    software,
    stopwatch,
    throttling,
)
from experiments.checkup.check import Check


@dataclass(frozen=True)
class Computing:
    """What can only be read through torch. ``last_level_cache`` in bytes; ``dtypes``: device -> what it multiplies."""

    cuda: gpu.TorchCuda
    backends: backends.Backends
    dtypes: dict[str, list[str]]
    timers: dict[str, list[str]]
    pages: pages.Pages
    last_level_cache: int | None
    processors: processors.Processors
    barrier: barrier.Barrier | None


@dataclass(frozen=True)
class Readings:
    """All that was read; ``computing`` is None where torch cannot be imported."""

    software: software.Software
    driver: gpu.Driver
    compiler: compiler.Compiler
    counters: counters.Counters
    frequency: frequency.Frequency
    throttling: throttling.CpuThrottling
    load: load.Load
    memory: memory.Memory
    stopwatch: stopwatch.Stopwatch
    disk: disk.Disk
    computing: Computing | None


def judge(seen: Readings) -> list[Check]:
    """Every check, in the order in which a person would ask."""
    gpus, on_torch = seen.driver.gpus, seen.computing
    threads = on_torch.processors.threads if on_torch else None
    return [
        *software.check(seen.software, len(gpus)),
        *(gpu.check(seen.driver, on_torch.cuda) if on_torch else []),
        *(backends.check(on_torch.backends) if on_torch else []),
        *compiler.check(seen.compiler, len(gpus)),
        *(processors.check(on_torch.processors) if on_torch else []),
        *(caches.check(on_torch.last_level_cache) if on_torch else []),
        *memory.check(seen.memory),
        *(pages.check(on_torch.pages) if on_torch else []),
        *load.check(seen.load, threads, gpus),
        *(barrier.check(on_torch.barrier) if on_torch else []),
        *frequency.check(seen.frequency, gpus),
        *throttling.check(seen.throttling, gpus),
        *stopwatch.check(seen.stopwatch),
        *counters.check(seen.counters),
        *disk.check(seen.disk),
    ]


def abilities(seen: Readings) -> list[str]:
    """What can be measured, one line per device: with which backends, dtypes and clocks."""
    if seen.computing is None:
        return ["nothing can be measured without torch"]
    lines = []
    for device, dtypes in seen.computing.dtypes.items():
        running = seen.computing.backends.running(device)
        timers = seen.computing.timers[device]
        lines.append(f"{device}: {', '.join(running) or 'no backend'}; {', '.join(dtypes)}; timer {', '.join(timers)}")
    return lines


def tally(checks: Sequence[Check]) -> str:
    """``20 ok, 3 notes, 1 problem``."""
    count = {verdict: sum(check.verdict == verdict for check in checks) for verdict in ("ok", "note", "problem")}
    many = {name: f"{n} {name}{'s' if n != 1 and name != 'ok' else ''}" for name, n in count.items()}
    return ", ".join(many.values())
