"""A point before anything runs: where it stands, what forbids it, and how much memory each series gets of it."""

from collections.abc import Sequence

from experiments.measuring.device import Device, find_device
from experiments.measuring.messages import Failed
from experiments.measuring.prepare import HEADROOM, oracle_bytes, read_layout, read_policy, replica_bytes, replica_count
from experiments.measuring.row import Where, gib
from experiments.measuring.scopes import workspaces
from experiments.measuring.series import Series
from experiments.measuring.timing import fixed_threads, timer_reasons
from experiments.record import together
from variants.contract.cost import Point
from variants.protocols import Request


def points(series: Series) -> list[Point]:
    """The inner loop of a series."""
    workload = series.workload
    return [Point(b, c, workload.queries, workload.dtype) for b in workload.batches for c in workload.contexts]


def places(series: Series) -> list[Where]:
    """Every point of a series on this machine, with the number of threads that it will run on."""
    device = find_device(series.device)
    with fixed_threads(series.timer.threads) as threads:
        return [Where(series, point, device, threads) for point in points(series)]


def obstacle(where: Where, kept: int = 0) -> Failed | None:
    """Why a point must not even be tried, if it must not: refused, or too large for the memory that is free now.

    ``kept`` bytes more would be, if need be.
    """
    if where.device is None:
        hint = "; study=predict tells what it would take" if where.series.profile else ""
        return Failed("refused", f"this machine has no {where.series.device} device{hint}")
    layout = where.series.spec.layout(where.series.workload.kv_dtype)
    reasons = [
        *where.series.policy.refuses(layout, where.point.queries),
        *where.device.refuses(where.point.dtype),
        *timer_reasons(where.series.timer.kind, where.device.kind),
        *_backend_reasons(where.series, where.device),
    ]
    if reasons:
        return Failed("refused", together(reasons))
    oracle = {"one sequence in float32 for the oracle": oracle_bytes(where.series, where.point)}
    parts, free = replica_bytes(where.series, where.point) | oracle, int((where.device.free_memory() + kept) * HEADROOM)
    if sum(parts.values()) <= free:
        return None
    sums = " + ".join(f"{name} {gib(size)}" for name, size in parts.items())
    cache = f"{where.point.batch} x {where.point.context} tokens x {layout.bytes_per_token} B"
    needs = f"needs {gib(sum(parts.values()))}: {sums}; the cache is {cache}; free: {gib(free)}"
    return Failed("too_large", needs)


def replicas_each(wheres: Sequence[Where], free: int) -> list[int] | None:
    """Replicas per series so that all of them fit into ``free`` bytes together; None if not even one each does."""
    each = [sum(replica_bytes(where.series, where.point).values()) for where in wheres]
    room = int(free * HEADROOM) - max(oracle_bytes(where.series, where.point) for where in wheres)
    room -= sum(sum(workspaces(where).values()) for where in wheres)
    alone = replicas_alone(wheres, free)
    for most in range(max(alone), 0, -1):
        counts = [min(most, count) for count in alone]
        if sum(count * size for count, size in zip(counts, each, strict=True)) <= room:
            return counts
    return None


def replicas_alone(wheres: Sequence[Where], free: int) -> list[int]:
    """Replicas per series where it has the ``free`` bytes to itself while its turn lasts."""
    return [replica_count(where.series, where.point, free) for where in wheres]


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
