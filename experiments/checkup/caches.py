"""The last-level cache: what must be evicted between two uses before a row may say ``cold``."""

from experiments.checkup.check import Check, size


def check(bytes_: int | None) -> list[Check]:
    """Of an unknown size nothing can be proved."""
    if bytes_:
        return [Check("last-level cache", "ok", size(bytes_))]
    advice = "rows will say warm, never cold: run where sysfs (or sysctl) tells the cache's size"
    return [Check("last-level cache", "note", "size unknown", advice)]
