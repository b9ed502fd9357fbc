"""Cold samples: what is timed lies in memory, ready to be read, and in no cache; the code that reads it is running."""

import time
from collections.abc import Iterable, Sequence

from experiments.measuring.sweep import EVICTING
from experiments.measuring.timing import Call

OPENING_S = 0.02  # until threads of whoever ran before have stopped spinning, and ours are spread over the cores
SETTLE_S = 0.005  # the former alone


def make_cold(calls: Iterable[Call], sweep: Call) -> None:
    """Run what will be timed, then read so much else that nothing of it is left in a cache."""
    touch(calls)
    sweep()


def touch(calls: Iterable[Call]) -> None:
    """Run what will be timed before the caches are swept.

    A virtual machine may have unmapped what nobody has read lately, and has to find it again: of 1 GiB on two cores,
    read whole in 42 ms, a pass took 44 ms after 0.1 s, 55 after half a second and 75 after four.
    """
    for call in calls:
        call()


def opened(calls: Sequence[Call], seconds: float = OPENING_S) -> Sequence[Call]:
    """Run the first call, untimed, for so long; return the others, whose data are cold still. Of one: itself, not run.

    The first call after a sweep took two to three times as long as the next one on cold data of its own (medians of 20
    points on two cores): its code is as cold as its data and its threads are asleep. A layer of a model that runs meets
    neither, for the layer before has been there.
    """
    if len(calls) == 1:
        time.sleep(SETTLE_S)
        return calls
    repeat(calls[0], seconds)
    return calls[1:]


def repeat(call: Call, seconds: float = OPENING_S) -> None:
    """Run a call at least once, and for so long."""
    end = time.perf_counter() + seconds
    call()
    while time.perf_counter() < end:
        call()


def is_cold(reuse_bytes: int, last_level_cache: int | None) -> bool:
    """Whether that many bytes, read between two uses, are known to have evicted everything."""
    return last_level_cache is not None and reuse_bytes >= EVICTING * last_level_cache
