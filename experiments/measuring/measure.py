"""One straight line per point: refuse, fit, prepare, prove, time each scope, say what was seen."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.measuring import audit
from experiments.measuring.bench import Bench, Benches
from experiments.measuring.ceilings import EVICTING
from experiments.measuring.coding import coding_error
from experiments.measuring.device import Device, find_device
from experiments.measuring.prepare import (
    Replica,
    error_budget,
    oracle_bytes,
    prepare,
    prove,
    read_layout,
    read_policy,
    replica_bytes,
)
from experiments.measuring.row import Where, failed_row, known, timed_columns, work_of
from experiments.measuring.series import Series
from experiments.measuring.statistics import summarise
from experiments.measuring.timing import Samples, collect, fixed_threads, timer_reasons
from experiments.record import Measurement, together
from variants.contract.cost import Point, roofline
from variants.protocols import Request
from variants.view import TORCH_DTYPES

HEADROOM = 0.9  # share of the free memory that a point may plan to use


@dataclass(frozen=True)
class Measured:
    """The rows of one point and, by key of a timed row, its raw samples in microseconds [rounds, replicas]."""

    rows: tuple[Measurement, ...]
    samples: dict[str, NDArray[np.float64]]


def points(series: Series) -> list[Point]:
    """The inner loop of a series."""
    workload = series.workload
    return [Point(b, c, workload.queries, workload.dtype) for b in workload.batches for c in workload.contexts]


def measure(series: Series, benches: Benches) -> Iterator[Measured]:
    """Measure every point of a series; a point that fails is a row that says so, and the next one runs."""
    device = find_device(series.device)
    for point in points(series):
        with fixed_threads(series.timer.threads) as threads, torch.no_grad():
            measured = _measure_point(Where(series, point, device, threads), benches)
        yield measured


def interrupted(series: Series, done: int) -> tuple[Measurement, ...]:
    """Rows for the point that was being measured after ``done`` others when the user stopped the run, if any."""
    with fixed_threads(series.timer.threads) as threads:
        device = find_device(series.device)
        stopped = [Where(series, point, device, threads) for point in points(series)[done : done + 1]]
    return tuple(
        failed_row(where, scope, "interrupted", "stopped by the user")
        for where in stopped
        for scope in series.workload.scopes
    )


def _measure_point(where: Where, benches: Benches) -> Measured:
    obstacle = _obstacle(where)
    if obstacle is None and where.device is not None:
        try:
            return _time_point(where, benches.of(where.series, where.device, where.threads))
        except (MemoryError, torch.OutOfMemoryError) as error:
            obstacle = "oom", f"out of memory: {error}"
        except Exception as error:  # whatever one point does wrong is that point's row, and the next one runs
            status = "oom" if "can't allocate memory" in str(error) else "error"  # torch's CPU allocator
            obstacle = status, f"{type(error).__name__}: {error}"
    assert obstacle is not None
    return Measured(tuple(failed_row(where, scope, *obstacle) for scope in where.series.workload.scopes), {})


def _obstacle(where: Where) -> tuple[str, str] | None:
    """Status and reason of a point that must not even be tried."""
    if where.device is None:
        hint = "; study=predict tells what it would take" if where.series.profile else ""
        return "refused", f"this machine has no {where.series.device} device{hint}"
    layout = where.series.spec.layout(where.series.workload.kv_dtype)
    reasons = [
        *where.series.policy.refuses(layout, where.point.queries),
        *where.device.refuses(where.point.dtype),
        *timer_reasons(where.series.timer.kind, where.device.kind),
        *_backend_reasons(where.series, where.device),
    ]
    if reasons:
        return "refused", together(reasons)
    oracle = {"one sequence in float32 for the oracle": oracle_bytes(where.series, where.point)}
    parts, free = replica_bytes(where.series, where.point) | oracle, int(where.device.free_memory() * HEADROOM)
    if sum(parts.values()) <= free:
        return None
    per_token = where.series.spec.layout(where.series.workload.kv_dtype).bytes_per_token
    sums = " + ".join(f"{name} {_gib(size)}" for name, size in parts.items())
    cache = f"{where.point.batch} x {where.point.context} tokens x {per_token} B"
    return "too_large", f"needs {_gib(sum(parts.values()))}: {sums}; the cache is {cache}; free: {_gib(free)}"


def _backend_reasons(series: Series, device: Device) -> list[str]:
    request = Request(
        geometry=(series.spec.unpacked() or series.spec).geometry(),
        layout=read_layout(series),
        storage=read_policy(series),
        device=device.kind,
        dtype=series.workload.dtype,
        queries=series.workload.queries,
        ragged=False,
    )
    return series.backend.refuses(request)


def _time_point(where: Where, bench: Bench) -> Measured:
    bench.ceilings, bench.matmul_tflops(where.point.dtype)  # before the caches take the memory
    replicas = prepare(where.series, where.point, bench.device)
    first = prove(replicas[0], bench.device.synchronize)
    proof = audit.matches_oracle(first.relative_error, error_budget(TORCH_DTYPES[where.point.dtype]))
    scopes = where.series.workload.scopes
    if not proof.holds:
        return Measured(tuple(failed_row(where, scope, "wrong", proof.numbers) for scope in scopes), {})
    kv_error = coding_error(where.series, replicas[0].planned.attention, where.point.context, bench.device)
    rows, samples = [], {}
    for scope in scopes:
        taken = _collect(where, scope, replicas, bench)
        if scope == "attend":
            taken = replace(taken, first_call_us=first.first_call_us)
        rows.append(_timed_row(where, scope, replicas, taken, bench, proof, kv_error))
        samples[rows[-1].key] = taken.us
    return Measured(tuple(rows), samples)


def _collect(where: Where, scope: str, replicas: list[Replica], bench: Bench) -> Samples:
    calls = [replica.attend if scope == "attend" else replica.step for replica in replicas]
    if where.series.workload.temperature == "warm":
        return collect(calls[:1] * len(calls), bench.timer, where.series.timer.rounds, evict=lambda: None)
    return collect(calls, bench.timer, where.series.timer.rounds, evict=bench.sweep)


def _timed_row(
    where: Where,
    scope: str,
    replicas: list[Replica],
    taken: Samples,
    bench: Bench,
    proof: audit.Check,
    kv_error: float | None,
) -> Measurement:
    summary, work = summarise(taken.us), work_of(where, scope)
    temperature, reuse = _temperature(where, work.io_bytes, len(replicas), bench)
    ceiling = _read_ceiling(bench, temperature, work.io_bytes / summary.p50 / 1e3)
    matmul = bench.matmul_tflops(where.point.dtype)
    columns = {
        **known(where, scope, temperature),
        **timed_columns(summary, work, roofline(work, ceiling, matmul)),
        "first_call_us": taken.first_call_us,
        "kv_error": kv_error,
        "plan_us": replicas[0].plan_us,
        "reuse_bytes": reuse,
        "interleave": "none",
        "read_ceiling_gbps": ceiling,
        "matmul_ceiling_tflops": matmul,
        "kernel": replicas[0].planned.plan.kernel,
    }
    checks = (
        proof,
        audit.below_ceiling(columns["bandwidth_gbps"], ceiling),
        audit.allocated_as_predicted(replicas[0].planned.cache.allocated_bytes, columns["allocated_bytes"]),
        audit.no_outliers(summary),
    )
    return Measurement(**columns, **_verdict(checks))


def _read_ceiling(bench: Bench, temperature: str, achieved_gbps: float) -> float:
    """The ceiling that fits a row; measured once more if the row is above it, before anyone calls the row a lie."""
    ceiling = bench.ceilings.at(temperature)
    if audit.below_ceiling(achieved_gbps, ceiling).holds:
        return ceiling
    bench.raise_ceilings()
    return bench.ceilings.at(temperature)


def _temperature(where: Where, io_bytes: int, replicas: int, bench: Bench) -> tuple[str, int]:
    """Cold only if the bytes touched between two uses are known to evict the last-level cache; warm: one replica's."""
    if where.series.workload.temperature == "warm":
        return "warm", io_bytes
    reuse, cache = replicas * io_bytes + bench.sweep.bytes, bench.device.last_level_cache
    return ("cold" if cache is not None and reuse >= EVICTING * cache else "warm"), reuse


def _verdict(checks: tuple[audit.Check, ...]) -> dict[str, Any]:
    failed = audit.failures(checks)
    return {
        "audits": "; ".join(map(str, checks)),
        "status": "quarantined" if failed else "ok",
        "reason": failed or None,
    }


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB ({size} B)" if size >= 2**20 else f"{size} B"
