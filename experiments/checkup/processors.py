"""Which CPUs the threads would run on."""

from dataclasses import dataclass

from experiments.checkup.check import Check


@dataclass(frozen=True)
class Processors:
    """``allowed`` of ``total`` logical CPUs; ``threads``: what torch would use, None without torch."""

    name: str
    allowed: int
    total: int
    per_core: int | None
    numa_nodes: int | None
    threads: int | None
    vectors: str | None


def check(seen: Processors) -> list[Check]:
    """More threads than cores, or cores of several memories, make times depend on where threads happen to run."""
    shared = f", {seen.per_core} per core" if seen.per_core else ""
    said = f"{seen.name}: {seen.allowed} of {seen.total} CPUs{shared}, {seen.vectors or 'unknown vectors'}"
    return [Check("processors", "ok", said), *_threads(seen), *_nodes(seen)]


def _threads(seen: Processors) -> list[Check]:
    if seen.threads is None:
        return []
    cores = seen.allowed // (seen.per_core or 1) or 1
    said = f"torch uses {seen.threads} on {seen.allowed} CPUs ({cores} cores)"
    if seen.threads > seen.allowed:
        advice = f"timer.threads={cores}, or OMP_NUM_THREADS={cores}: threads wait for each other's CPU"
        return [Check("threads", "problem", said, advice)]
    if seen.threads > cores:
        return [Check("threads", "note", said, f"timer.threads={cores}: two threads of one core share its units")]
    return [Check("threads", "ok", said)]


def _nodes(seen: Processors) -> list[Check]:
    if not seen.numa_nodes or seen.numa_nodes == 1:
        return []
    advice = "`numactl --cpunodebind=0 --membind=0 python -m experiments.run ...`, or compare only rows of both nodes"
    return [Check("memory nodes", "note", f"{seen.numa_nodes} NUMA nodes", advice)]
