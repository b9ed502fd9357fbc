"""Time small parallel operations of torch: each begins and ends with all threads meeting."""

import re
import time
from pathlib import Path

import numpy as np

from experiments.checkup.barrier import STALL_US, Barrier
from experiments.checkup.reading.files import text

ELEMENTS = 2**17  # enough that torch splits the work, little enough that meeting costs as much as computing
SECONDS, CALLS = 0.5, 4000
OPENMP = re.compile(r"/((?:lib[gi]?omp|libomp)[^/\s]*\.(?:so|dylib)[^/\s]*)$")


def read() -> Barrier | None:
    """Half a second of it; None with one thread. Call only where torch can be imported."""
    import torch

    threads = torch.get_num_threads()
    if threads < 2:
        return None
    buffer = torch.zeros(ELEMENTS)
    for _ in range(20):  # threads start, pages are touched
        buffer.add_(1)
    us: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(us) < CALLS and time.perf_counter() < end:
        start = time.perf_counter_ns()
        buffer.add_(1)
        us.append((time.perf_counter_ns() - start) / 1e3)
    return summarise(us, threads, openmp_libraries(text(Path("/proc/self/maps")) or ""))


def summarise(us: list[float], threads: int, runtimes: tuple[str, ...]) -> Barrier:
    """Percentiles of the calls."""
    p50, p99 = (float(value) for value in np.quantile(us, (0.5, 0.99)))
    return Barrier(threads, len(us), p50, p99, max(us), float(np.mean(np.array(us) > STALL_US)), runtimes)


def openmp_libraries(maps: str) -> tuple[str, ...]:
    """The different OpenMP libraries among a process's mapped files, by path."""
    paths = {line.split(maxsplit=5)[-1] for line in maps.splitlines() if line.count("/")}
    return tuple(sorted({match[1] for path in paths if (match := OPENMP.search(path))}))
