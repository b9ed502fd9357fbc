"""Huge pages: without them a CPU spends its time looking up addresses, not reading."""

from dataclasses import dataclass

from experiments.checkup.check import Check, size


@dataclass(frozen=True)
class Pages:
    """``mode``: of transparent huge pages, None where there are none. ``got`` of ``asked`` bytes came in huge pages."""

    mode: str | None
    asked: int
    got: int | None


def check(seen: Pages) -> list[Check]:
    """Whether asking for them works, which is what counts; the mode alone promises nothing."""
    got = "unknown" if seen.got is None else size(seen.got)
    said = f"mode {seen.mode or 'none'}, {got} of {size(seen.asked)} came huge"
    if seen.got is not None and 2 * seen.got >= seen.asked:
        return [Check("huge pages", "ok", said)]
    if seen.mode == "never":
        advice = (
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; reads here can reach twice the speed"
        )
    elif seen.mode is None:
        advice = "this system offers none: compare rows only with rows of machines without them"
    else:
        advice = "memory may be in pieces: restart the machine, or echo 1 > /proc/sys/vm/compact_memory as root"
    return [Check("huge pages", "note", said, advice)]
