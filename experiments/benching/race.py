"""Several ways of doing one thing, timed in turns on cold data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from experiments.measuring.cold import OPENING_S, make_cold, opened
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

    @property
    def untimed(self) -> list[Call]:
        """The calls, each with what restores its data."""
        return [partial(self._and_restore, call) for call in self.calls]

    def _and_restore(self, call: Call) -> None:
        call()
        self.restore()


@dataclass(frozen=True)
class Latency:
    """What one contender took. ``reuse_bytes``: touched between two uses of the same data."""

    point: str
    contender: str
    p50_us: float
    samples: int
    reuse_bytes: int


def race(
    point: str, contenders: Sequence[Contender], timer: Timer, rounds: int, sweep: Sweep, opening_s: float = OPENING_S
) -> dict[str, Latency]:
    """Time all contenders in every round, forwards and backwards in turn, each made cold and opened before.

    Every call runs once before the first round: compilation, allocation and page faults are in no sample. Where one
    round takes so long that they would fill ``MOST_US``, there are fewer of them, as many forwards as backwards.
    """
    once = sum(sum(_lap(contender, timer, len(contender.calls))) for contender in contenders)
    rounds = max(2, min(rounds, int(MOST_US / once) // 2 * 2))
    us: dict[str, list[list[float]]] = {c.name: [] for c in contenders}
    for round_ in range(rounds):
        for contender in contenders if round_ % 2 == 0 else contenders[::-1]:
            make_cold(contender.untimed, sweep)
            timed = len(opened(contender.untimed, opening_s))
            us[contender.name].append(_lap(contender, timer, timed))
    return {c.name: _latency(point, c, np.array(us[c.name]), sweep) for c in contenders}


def screen(contenders: Sequence[Contender], timer: Timer, kept: Sequence[str] = ()) -> list[Contender]:
    """Without those many times slower than the fastest, which could only waste time; ``kept`` stay in any case."""
    seen = {c.name: min(timer.time(c.calls[0]) for _ in range(2)) for c in contenders}
    limit = MANY_TIMES_SLOWER * min(seen.values())
    return [c for c in contenders if c.name in kept or seen[c.name] <= limit]


def _lap(contender: Contender, timer: Timer, count: int) -> list[float]:
    """Samples of the last ``count`` calls."""
    us = []
    for call in contender.calls[-count:]:
        us.append(timer.time(call))
        contender.restore()
    return us


def _latency(point: str, contender: Contender, us: NDArray[np.float64], sweep: Sweep) -> Latency:
    reuse = len(contender.calls) * contender.bytes + sweep.bytes
    return Latency(point, contender.name, summarise(us).p50, us.size, reuse)
