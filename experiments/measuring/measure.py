"""One straight line per point, for all series that have it: refuse, fit, prepare, sample in turn, say what was seen."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.measuring.messages import Hand
from experiments.measuring.point import obstacle, replicas_alone, replicas_each
from experiments.measuring.roofs import Roofs
from experiments.measuring.rounds import Lane, take_rounds
from experiments.measuring.row import Where, failed_rows
from experiments.measuring.scopes import blocked_scopes
from experiments.measuring.series import TimerChoice
from experiments.measuring.timed import Measured, Race, rows_of_lane
from experiments.record import Measurement


@dataclass(frozen=True)
class Entrant:
    """A series at a point, and the worker who holds it."""

    where: Where
    hand: Hand


def measure_point(entrants: Sequence[Entrant], timer: TimerChoice, roofs: Roofs) -> list[Measured]:
    """One ``Measured`` per entrant, in their order. All stand at the same point of the same device, with one timer.

    What fails in one series, its worker's end included, is that series' rows and leaves the others' as they are.
    """
    lanes = [Lane(entrant.where.now(), entrant.hand, replicas=1) for entrant in entrants]
    for lane in lanes:
        lane.failed = obstacle(lane.where)
        lane.blocked = {} if lane.failed else blocked_scopes(lane.where)
        if not lane.idle:
            lane.failed = roofs.find(lane.where, lane.hand)  # before caches take the memory
    race = _race([lane for lane in lanes if not lane.idle], timer)
    measured = [rows_of_lane(lane, race, roofs) for lane in lanes]
    for lane in lanes:
        if lane.failed is None:
            lane.release()
    return measured


def interrupted(where: Where) -> tuple[Measurement, ...]:
    """Rows of a point that was being measured when the user stopped the run."""
    return failed_rows(where.now(), "interrupted", "stopped by the user")


def _race(lanes: Sequence[Lane], timer: TimerChoice) -> Race:
    """Sample the lanes; resident if all their replicas fit into memory together, else each in its turn."""
    resident = _share_memory(lanes)
    if resident:
        for lane in lanes:
            lane.prepare()
    running = [lane for lane in lanes if not lane.idle]
    stop = take_rounds(running, timer, realloc=not resident)
    together = "resident" if resident else "realloc"
    return Race(uuid.uuid4().hex[:12], together if len(running) > 1 else "none", stop)


def _share_memory(lanes: Sequence[Lane]) -> bool:
    """Give every lane its number of replicas; False if they cannot all be in memory at once."""
    if not lanes:
        return True
    wheres = [lane.where for lane in lanes]
    assert wheres[0].device is not None
    free = wheres[0].device.free_memory()
    together = replicas_each(wheres, free)
    for lane, count in zip(lanes, together or replicas_alone(wheres, free), strict=True):
        lane.replicas = count
    return together is not None
