"""Samples of several series in turn, forward and reverse, until their medians are known well enough.

What changes while a study runs - a clock that throttles, a neighbour that comes and goes - then meets all series alike:
the samples of one round belong together, and a ratio of two series is taken round by round.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.measuring.messages import Failed, Hand, Prepare, Ready, Release, Sample, Taken
from experiments.measuring.row import Where
from experiments.measuring.series import TimerChoice
from experiments.measuring.statistics import LEAST_ROUNDS, summarise
from experiments.measuring.workload import Cell

LOST = ("crash", "timeout")  # a worker that will not answer again


@dataclass
class Lane:
    """One series in the rounds of one point: what it has said so far. After a failure it is asked nothing more.

    ``blocked``: scopes that cannot be sampled, and why, where the others can.
    """

    where: Where
    hand: Hand
    replicas: int
    blocked: dict[str, Failed] = field(default_factory=dict)
    ready: Ready | None = None
    failed: Failed | None = None
    rounds: dict[Cell, list[Taken]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the replicas ready to be sampled, in every scope that is not blocked."""
        scopes = tuple(s for s in self.where.series.workload.scopes if s not in self.blocked)
        reply = self.hand.ask(Prepare(self.where.point, self.replicas, scopes))
        if isinstance(reply, Ready):
            self.ready = reply
            self.blocked |= {scope: found for scope, found in reply.scopes.items() if isinstance(found, Failed)}
        else:
            self._fail(reply)

    def sample(self) -> None:
        """One round of every row of the point."""
        for cell in self.where.series.workload.cells:
            if self.failed is not None:
                return
            if cell.scope in self.blocked:
                continue
            reply = self.hand.ask(Sample(cell))
            if isinstance(reply, Taken):
                self.rounds.setdefault(cell, []).append(reply)
            elif isinstance(reply, Failed) and reply.status not in LOST:
                self.blocked[cell.scope] = reply
            else:
                self._fail(reply)

    def release(self) -> None:
        """Give up the memory."""
        self.hand.ask(Release())

    @property
    def idle(self) -> bool:
        """Whether nothing is left to sample."""
        return self.failed is not None or all(scope in self.blocked for scope in self.where.series.workload.scopes)

    def us(self, cell: Cell) -> NDArray[np.float64]:
        """Samples [rounds, replicas] of one row."""
        return np.array([taken.us for taken in self.rounds[cell]], dtype=np.float64)

    def _fail(self, reply: object) -> None:
        assert isinstance(reply, Failed), reply
        self.failed = reply
        self.release()


def take_rounds(
    lanes: Sequence[Lane], timer: TimerChoice, realloc: bool, clock: Callable[[], float] = time.monotonic
) -> str:
    """Sample all lanes in turn and return why it ended: ``ci``, ``rounds`` or ``budget``.

    ``realloc``: the lanes do not fit into memory together, so each is prepared for its turn and released after it.
    """
    start = clock()
    for number in itertools.count(1):
        for lane in lanes if number % 2 else lanes[::-1]:
            _turn(lane, realloc)
        enough = _enough([lane for lane in lanes if not lane.idle], timer, number, clock() - start)
        if enough is not None:
            return enough
    raise AssertionError("unreachable")


def _turn(lane: Lane, realloc: bool) -> None:
    if lane.failed is None and realloc:
        lane.prepare()
    if lane.failed is None:
        lane.sample()
    if realloc:
        lane.release()


def _enough(lanes: Sequence[Lane], timer: TimerChoice, number: int, spent_s: float) -> str | None:
    if not lanes:
        return "rounds"
    if number < timer.rounds:
        return None
    if timer.ci_width is not None and number >= LEAST_ROUNDS and _widest(lanes, timer.ci_width) <= timer.ci_width:
        return "ci"
    if number >= (timer.max_rounds or timer.rounds):
        return "rounds"
    return "budget" if timer.budget_s is not None and spent_s >= timer.budget_s else None


def _widest(lanes: Sequence[Lane], enough: float) -> float:
    """Width of the widest interval as a share of its median, or of the first that is wider than ``enough``."""
    widest = 0.0
    for lane in lanes:
        for cell in lane.rounds:
            told = summarise(lane.us(cell))
            if told.ci_low is None or told.ci_high is None:
                return float("inf")
            widest = max(widest, (told.ci_high - told.ci_low) / told.p50)
            if widest > enough:
                return widest
    return widest
