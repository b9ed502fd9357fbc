"""Rows of a point that was timed: from what its worker said to the flat row, with the checks that it must pass."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.measuring import audit
from experiments.measuring.bench import Bench, Benches
from experiments.measuring.cold import is_cold
from experiments.measuring.messages import Failed, Ready, Scoped
from experiments.measuring.rounds import Lane
from experiments.measuring.row import Where, failed_row, failed_rows, known, roofline_columns, timed_columns, work_of
from experiments.measuring.statistics import Summary, summarise
from experiments.measuring.sweep import EVICTING
from experiments.measuring.workload import Cell
from experiments.record import Measurement
from variants.contract.cost import Work, roofline


@dataclass(frozen=True)
class Measured:
    """The rows of one series at one point and, by key of a timed row, its raw samples in us [rounds, replicas].

    ``contact_us`` went into first touching the memory of its weights and caches, ``filled_us`` into filling it.
    """

    rows: tuple[Measurement, ...]
    samples: dict[str, NDArray[np.float64]]
    contact_us: float = 0.0
    filled_us: float = 0.0


@dataclass(frozen=True)
class Race:
    """What rows that were sampled in the same rounds share; columns of the row."""

    name: str
    interleave: str
    stop: str


def rows_of_lane(lane: Lane, race: Race, benches: Benches) -> Measured:
    """All rows of a lane: timed, or without a latency and with the reason."""
    if lane.failed is not None:
        return Measured(failed_rows(lane.where, lane.failed), {})
    rows, samples = [], {}
    for cell in lane.where.series.workload.cells:
        row = _row(lane, cell, race, benches)
        rows.append(row)
        if row.samples is not None:
            samples[row.key] = lane.us(cell)
    return Measured(tuple(rows), samples, lane.contact_us, lane.filled_us)


def _row(lane: Lane, cell: Cell, race: Race, benches: Benches) -> Measurement:
    blocked = lane.blocked.get(cell.scope)
    if blocked is not None:
        return failed_row(lane.where, cell, blocked)
    assert lane.ready is not None
    scoped = lane.ready.scopes[cell.scope]
    assert isinstance(scoped, Scoped)
    bench = benches.of(lane.where)
    unproved = _unproved(lane, cell)
    return unproved or _timed_row(lane, cell, lane.ready, scoped, race, bench)


def _unproved(lane: Lane, cell: Cell) -> Measurement | None:
    """Of a pair, the cold row that would say ``warm``, and so stand for the other one."""
    where = lane.where
    said, reuse = _temperature(lane, cell)
    if said == cell.temperature or said not in where.series.workload.temperatures:
        return None
    needs = f"cold needs {EVICTING}x the last-level cache ({where.last_level_cache} B); got {reuse} B"
    return failed_row(where, cell, Failed("refused", needs))


def _timed_row(lane: Lane, cell: Cell, ready: Ready, scoped: Scoped, race: Race, bench: Bench) -> Measurement:
    where, summary, work = lane.where, summarise(lane.us(cell)), work_of(lane.where, cell.scope)
    temperature, reuse = _temperature(lane, cell)
    ceiling = _read_ceiling(where, temperature, work, summary, bench)
    matmul = bench.matmul_tflops(where.point.dtype)
    columns = {
        **known(where, cell.scope, temperature),
        **timed_columns(summary, work),
        **roofline_columns(summary, roofline(work, ceiling, matmul)),
        "first_call_us": scoped.first_call_us,
        "warmup_us": scoped.warmup_us + lane.touched_us[cell] + sum(taken.opening_us for taken in lane.rounds[cell]),
        "kv_error": ready.kv_error,
        "plan_us": scoped.plan_us,
        "reuse_bytes": reuse,
        "interleave": race.interleave,
        "race": race.name,
        "stop": race.stop,
        "read_ceiling_gbps": ceiling,
        "matmul_ceiling_tflops": matmul,
        "kernel": scoped.kernel,
        "reserved_bytes": ready.reserved_bytes,
        "transient_bytes": scoped.transient_bytes,
    }
    checks = (
        *scoped.checks,
        *ready.checks,
        audit.counted(ready.counted_bytes, columns["cache_bytes"]),
        audit.whole_time([(sum(t.us), t.wall_us, len(t.us)) for t in lane.rounds[cell]]),
        audit.same_threads({t.threads for t in lane.rounds[cell]}, where.threads),
        audit.nothing_compiled(sum(t.compiled for t in lane.rounds[cell])),
        audit.not_throttled([t.clocks for t in lane.rounds[cell]]),
        audit.below_ceiling(columns["bandwidth_gbps"], ceiling),
        audit.allocated_as_predicted(ready.allocated_bytes, columns["allocated_bytes"]),
        audit.no_outliers(summary),
    )
    return Measurement(**columns, **_verdict(checks), attempts=1)


def _read_ceiling(where: Where, temperature: str, work: Work, summary: Summary, bench: Bench) -> float:
    """The ceiling that fits a row; measured once more if the row is above it, before anyone calls the row a lie."""
    achieved, cache = work.io_bytes / summary.p50 / 1e3, where.last_level_cache
    ceiling = bench.ceilings.at(temperature, work.io_bytes, cache)
    if not audit.below_ceiling(achieved, ceiling).holds:
        bench.again()
    return bench.ceilings.at(temperature, work.io_bytes, cache)


def _temperature(lane: Lane, cell: Cell) -> tuple[str, int]:
    """Cold only if the bytes read between two uses are known to evict the last-level cache; warm: one replica's."""
    if cell.temperature == "warm":
        return "warm", work_of(lane.where, cell.scope).io_bytes
    reuse = lane.reuse[cell]
    return ("cold" if is_cold(reuse, lane.where.last_level_cache) else "warm"), reuse


def _verdict(checks: tuple[audit.Check, ...]) -> dict[str, Any]:
    failed = audit.failures(checks)
    return {
        "audits": "; ".join(map(str, checks)),
        "status": "quarantined" if failed else "ok",
        "reason": failed or None,
    }
