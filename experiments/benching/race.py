"""Several ways of doing one thing, timed in turns on cold data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.measuring.cold import SETTLE_S, make_cold
from experiments.measuring.statistics import summarise
from experiments.measuring.sweep import Sweep
from experiments.measuring.timing import Call, Timer

MANY_TIMES_SLOWER = 4.0
MOST_US = 30e6  # of one race


@dataclass(frozen=True)
class Contender:
    """One way, over several replicas of its data, all touched once per round. ``restore`` is untimed, after each call.

    ``bytes`` are what one call reads.
    """

    name: str
    calls: Sequence[Call]
    bytes: int
    restore: Call = field(default=lambda: None)


@dataclass(frozen=True)
class Latency:
    """What one contender took. ``reuse_bytes``: touched between two uses of the same data."""

    point: str
    contender: str
    p50_us: float
    samples: int
    reuse_bytes: int


def race(
    point: str, contenders: Sequence[Contender], timer: Timer, rounds: int, sweep: Sweep, settle_s: float = SETTLE_S
) -> dict[str, Latency]:
    """Time all contenders in every round, forwards and backwards in turn, each made cold before.

    Every call runs once before the first round: compilation, allocation and page faults are in no sample. Where one
    round takes so long that they would fill ``MOST_US``, there are fewer of them, as many forwards as backwards.
    """
    once = sum(sum(_lap(contender, timer)) for contender in contenders)
    rounds = max(2, min(rounds, int(MOST_US / once) // 2 * 2))
    us = {c.name: np.empty((rounds, len(c.calls))) for c in contenders}
    for round_ in range(rounds):
        for contender in contenders if round_ % 2 == 0 else contenders[::-1]:
            make_cold([partial(_untimed, contender)], sweep, settle_s)
            us[contender.name][round_] = _lap(contender, timer)
    return {c.name: _latency(point, c, us[c.name], sweep) for c in contenders}


def screen(contenders: Sequence[Contender], timer: Timer, kept: Sequence[str] = ()) -> list[Contender]:
    """Without those many times slower than the fastest, which could only waste time; ``kept`` stay in any case."""
    seen = {c.name: min(timer.time(c.calls[0]) for _ in range(2)) for c in contenders}
    limit = MANY_TIMES_SLOWER * min(seen.values())
    return [c for c in contenders if c.name in kept or seen[c.name] <= limit]


def _lap(contender: Contender, timer: Timer) -> list[float]:
    us = []
    for call in contender.calls:
        us.append(timer.time(call))
        contender.restore()
    return us


def _untimed(contender: Contender) -> None:
    for call in contender.calls:
        call()
        contender.restore()


def _latency(point: str, contender: Contender, us: NDArray[np.float64], sweep: Sweep) -> Latency:
    reuse = len(contender.calls) * contender.bytes + sweep.bytes
    return Latency(point, contender.name, summarise(us).p50, us.size, reuse)
