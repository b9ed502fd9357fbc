"""Samples of several series in turn, forward and reverse, until their medians are known well enough.

What changes while a study runs - a clock that throttles, a neighbour that comes and goes - then meets all series alike:
the samples of one round belong together, and a ratio of two series is taken round by round.
"""

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from experiments.measuring.messages import (
    Failed,
    Hand,
    Prepare,
    Ready,
    Release,
    Reply,
    Sample,
    Scoped,
    Taken,
    Touch,
    Touched,
)
from experiments.measuring.row import Where, work_of
from experiments.measuring.series import TimerChoice
from experiments.measuring.statistics import LEAST_ROUNDS, summarise
from experiments.measuring.workload import Cell

FRESH_S = 0.2  # between touching and sampling lies at most about twice that, and a sweep: see cold.touch
LOST = ("crash", "timeout")  # a worker that will not answer again


@dataclass(frozen=True)
class Evict:
    """``rest(already)`` reads what is missing until ``enough`` bytes have gone through the caches, and returns that."""

    enough: int
    rest: Callable[[int], int]


@dataclass
class Lane:
    """One series in the rounds of one point: what it has said so far. After a failure it is asked nothing more.

    ``blocked``: scopes that cannot be sampled, and why, where the others can. ``reuse``: of a cold cell, the fewest
    bytes that were read in a round between touching a replica and timing it, by all lanes and the sweep.
    """

    where: Where
    hand: Hand
    replicas: int
    blocked: dict[str, Failed] = field(default_factory=dict)
    ready: Ready | None = None
    failed: Failed | None = None
    rounds: dict[Cell, list[Taken]] = field(default_factory=dict)
    contact_us: float = 0.0
    filled_us: float = 0.0
    touched_us: dict[Cell, float] = field(default_factory=lambda: defaultdict(float))
    reuse: dict[Cell, int] = field(default_factory=dict)

    def prepare(self) -> None:
        """Make the replicas ready to be sampled, in every scope that is not blocked."""
        scopes = tuple(s for s in self.where.series.workload.scopes if s not in self.blocked)
        reply = self.hand.ask(Prepare(self.where.point, self.replicas, scopes))
        if isinstance(reply, Ready):
            self.ready = reply
            self.contact_us += reply.contact_us
            self.filled_us += reply.filled_us
            self.blocked |= {scope: found for scope, found in reply.scopes.items() if isinstance(found, Failed)}
        else:
            self._fail(reply)

    def runs(self, cell: Cell) -> bool:
        """Whether it can be sampled in a cell."""
        return self.failed is None and cell in self.where.series.workload.cells and cell.scope not in self.blocked

    def seconds(self, cell: Cell) -> float:
        """About as long as its replicas take, each once."""
        if cell in self.rounds:
            return self.rounds[cell][-1].wall_us / 1e6
        scoped = self.ready.scopes[cell.scope] if self.ready else None
        return scoped.warmup_us / 1e6 if isinstance(scoped, Scoped) else 0.0

    def bytes(self, cell: Cell) -> int:
        """What its replicas read, each once."""
        held = self.ready.replicas if self.ready and self.runs(cell) else 0
        return held * work_of(self.where, cell.scope).io_bytes

    def touch(self, cell: Cell) -> None:
        """Run what will be sampled."""
        if self.runs(cell):
            self._check(cell, self.hand.ask(Touch(cell)))

    def cold(self, cell: Cell, between: int) -> None:
        """Note that so many bytes were read since it was touched."""
        self.reuse[cell] = min(between, self.reuse.get(cell, between))

    def sample(self, cell: Cell) -> None:
        """One round of one row of the point."""
        if self.runs(cell):
            self._check(cell, self.hand.ask(Sample(cell)))

    def _check(self, cell: Cell, reply: Reply) -> None:
        if isinstance(reply, Taken):
            self.rounds.setdefault(cell, []).append(reply)
        elif isinstance(reply, Touched):
            self.touched_us[cell] += reply.wall_us
        elif isinstance(reply, Failed) and reply.status not in LOST:
            self.blocked[cell.scope] = reply
        elif isinstance(reply, Failed):
            self._fail(reply)

    def release(self, keeping: bool = True) -> None:
        """Give up the point's memory, and the weights too unless ``keeping``."""
        self.hand.ask(Release(keeping))

    @property
    def idle(self) -> bool:
        """Whether nothing is left to sample."""
        return self.failed is not None or all(scope in self.blocked for scope in self.where.series.workload.scopes)

    def us(self, cell: Cell) -> NDArray[np.float64]:
        """Samples [rounds, replicas that are timed] of one row."""
        return np.array([taken.us for taken in self.rounds[cell]], dtype=np.float64)

    def _fail(self, reply: object) -> None:
        assert isinstance(reply, Failed), reply
        self.failed = reply
        self.release()


def take_rounds(
    lanes: Sequence[Lane],
    timer: TimerChoice,
    realloc: bool,
    evict: Evict,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """Sample all lanes in turn and return why it ended: ``ci``, ``rounds`` or ``budget``.

    ``realloc``: the lanes do not fit into memory together, so each is prepared for its turn and released after it.
    """
    start = clock()
    for number in itertools.count(1):
        order = lanes if number % 2 else lanes[::-1]
        for turn in [[lane] for lane in order] if realloc else [order]:
            _turn(turn, realloc, evict)
        enough = _enough([lane for lane in lanes if not lane.idle], timer, number, clock() - start)
        if enough is not None:
            return enough
    raise AssertionError("unreachable")


def _turn(lanes: Sequence[Lane], realloc: bool, evict: Evict) -> None:
    """A round of every row of the lanes that are in memory together."""
    for lane in lanes:
        if realloc and lane.failed is None:
            lane.prepare()
    for cell in dict.fromkeys(cell for lane in lanes for cell in lane.where.series.workload.cells):
        for together in _batches([lane for lane in lanes if lane.runs(cell)], cell, evict.enough):
            _sample(together, cell, evict)
    for lane in lanes:
        if realloc:
            lane.release(keeping=False)


def _batches(lanes: Sequence[Lane], cell: Cell, enough: int) -> list[list[Lane]]:
    """Lanes that are touched together: until they evict each other, or the first one's bytes would be left too long."""
    batches: list[list[Lane]] = []
    spent, read = 0.0, enough
    for lane in lanes:
        seconds = lane.seconds(cell)
        if read >= enough or spent + seconds > FRESH_S:
            batches.append([])
            spent, read = 0.0, 0
        batches[-1].append(lane)
        spent += seconds
        read += lane.bytes(cell)
    return batches


def _sample(lanes: Sequence[Lane], cell: Cell, evict: Evict) -> None:
    """A round of one row of some lanes; if it is cold, all are touched before the caches are swept for all.

    Lanes that read much evict each other, and themselves: the sweep reads what is missing.
    """
    if cell.temperature == "cold":
        for lane in lanes:
            lane.touch(cell)
        touched = sum(lane.bytes(cell) for lane in lanes)
        between = touched + evict.rest(touched)
        for lane in lanes:
            lane.cold(cell, between)
    for lane in lanes:
        lane.sample(cell)


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
