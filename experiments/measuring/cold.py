"""Cold samples: what is timed lies in memory, ready to be read, and in no cache."""

import time
from collections.abc import Iterable

from experiments.measuring.sweep import EVICTING
from experiments.measuring.timing import Call

SETTLE_S = 0.005  # worker threads spin for a few ms after the sweep, in the way of other thread pools


def make_cold(calls: Iterable[Call], sweep: Call, settle_s: float = SETTLE_S) -> None:
    """Run what will be timed, then read so much else that nothing of it is left in a cache."""
    touch(calls)
    sweep()
    time.sleep(settle_s)


def touch(calls: Iterable[Call]) -> None:
    """Run what will be timed before the caches are swept.

    A virtual machine may have unmapped what nobody has read for a second or two: finding it again would take ten times
    as long as reading it.
    """
    for call in calls:
        call()


def is_cold(reuse_bytes: int, last_level_cache: int | None) -> bool:
    """Whether that many bytes, read between two uses, are known to have evicted everything."""
    return last_level_cache is not None and reuse_bytes >= EVICTING * last_level_cache
