"""Memory for caches: what is free, and what a container allows."""

from dataclasses import dataclass

from experiments.checkup.check import Check, size

COMFORT, LEAST, NOTHING = 8 * 2**30, 2 * 2**30, 256 * 2**20  # bytes


@dataclass(frozen=True)
class Memory:
    """Bytes. ``allowed``: what the container's limit leaves, None without a limit. ``swapped``: in use on disk."""

    total: int
    available: int
    allowed: int | None
    swapped: int = 0

    @property
    def free(self) -> int:
        """What can still be allocated."""
        return self.available if self.allowed is None else min(self.available, self.allowed)


def check(seen: Memory) -> list[Check]:
    """Points that do not fit are refused by arithmetic; with next to nothing, all are."""
    limit = f", {size(seen.allowed)} left of the container's limit" if seen.allowed is not None else ""
    said = f"{size(seen.available)} of {size(seen.total)} free{limit}"
    if seen.free >= COMFORT:
        return [Check("memory", "ok", said), *_swap(seen)]
    if seen.free >= LEAST:
        advice = (
            "large points will be too_large, and fewer replicas may make rows warm: raise the limit or end programs"
        )
        return [Check("memory", "note", said, advice), *_swap(seen)]
    advice = f"free at least {size(LEAST)}: end programs, or raise the container's limit"
    return [Check("memory", "problem", said, advice, stops=seen.free < NOTHING), *_swap(seen)]


def _swap(seen: Memory) -> list[Check]:
    if seen.swapped <= seen.total // 100:
        return []
    advice = "`swapoff -a`, or end what was swapped out: paging would be timed"
    return [Check("swap", "note", f"{size(seen.swapped)} in use", advice)]
