"""One straight line per point, for all series that have it: refuse, fit, prepare, sample in turn, say what was seen."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.measuring.bench import Benches
from experiments.measuring.failure import failure
from experiments.measuring.messages import Failed, Hand
from experiments.measuring.point import obstacle, replicas_alone, replicas_each
from experiments.measuring.rounds import Evict, Lane, take_rounds
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


def measure_point(entrants: Sequence[Entrant], timer: TimerChoice, benches: Benches) -> list[Measured]:
    """One ``Measured`` per entrant, in their order. All stand at the same point of the same device, with one timer.

    What fails in one series, its worker's end included, is that series' rows and leaves the others' as they are.
    """
    lanes = [Lane(entrant.where.now(), entrant.hand, replicas=1) for entrant in entrants]
    kept = sum(entrant.hand.kept_bytes for entrant in entrants)
    for lane in lanes:
        lane.failed = obstacle(lane.where, kept)
        lane.blocked = {} if lane.failed else blocked_scopes(lane.where)
        if not lane.idle:
            lane.failed = _roofless(lane.where, benches) or obstacle(lane.where, kept)  # the sweep takes memory too
        if lane.failed and lane.hand.kept_bytes:
            lane.release(keeping=False)  # others need the room
    race = _race([lane for lane in lanes if not lane.idle], timer, benches)
    measured = [rows_of_lane(lane, race, benches) for lane in lanes]
    for lane in lanes:
        if lane.failed is None:
            lane.release()
    return measured


def interrupted(where: Where) -> tuple[Measurement, ...]:
    """Rows of a point that was being measured when the user stopped the run."""
    return failed_rows(where.now(), Failed("interrupted", "stopped by the user"))


def _roofless(where: Where, benches: Benches) -> Failed | None:
    """Measure the ceilings of a point's rows, unless they are known, before caches take the memory; why that failed."""
    try:
        bench = benches.of(where)
        _ = bench.ceilings, bench.matmul_tflops(where.point.dtype)
    except Exception as error:  # a machine without the memory for it: no row can be held against a ceiling
        return failure(error)
    return None


def _race(lanes: Sequence[Lane], timer: TimerChoice, benches: Benches) -> Race:
    """Sample the lanes; resident if all their replicas fit into memory together, else each in its turn."""
    resident = _share_memory(lanes)
    for lane in lanes:
        if resident:
            lane.prepare()
        else:
            lane.release(keeping=False)
    running = [lane for lane in lanes if not lane.idle]
    stop = take_rounds(running, timer, not resident, _evict(running, benches))
    together = "resident" if resident else "realloc"
    return Race(uuid.uuid4().hex[:12], together if len(running) > 1 else "none", stop)


def _evict(lanes: Sequence[Lane], benches: Benches) -> Evict:
    """What evicts the caches of all lanes, which stand on one device."""
    if not lanes:
        return Evict(0, lambda already: 0)
    bench = benches.of(lanes[0].where)
    return Evict(bench.sweep.wanted, bench.evict)


def _share_memory(lanes: Sequence[Lane]) -> bool:
    """Give every lane its number of replicas; False if they cannot all be in memory at once."""
    if not lanes:
        return True
    wheres = [lane.where for lane in lanes]
    assert wheres[0].device is not None
    free = wheres[0].device.free_memory() + sum(lane.hand.kept_bytes for lane in lanes)
    together = replicas_each(wheres, free)
    for lane, count in zip(lanes, together or replicas_alone(wheres, free), strict=True):
        lane.replicas = count
    return together is not None
