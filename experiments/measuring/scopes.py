"""A scope's name -> the calls to time, what they need beside their point's caches, and why they may be believed.

``attend`` and ``step`` come with a replica and are proved with their point; ``whole`` and ``parts`` have the rest.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from experiments.measuring import audit
from experiments.measuring.device import Device
from experiments.measuring.layer import layer_error
from experiments.measuring.messages import Failed
from experiments.measuring.parts import ALONE, Parts, part_reasons
from experiments.measuring.prepare import HEADROOM, Replica, error_budget, replica_bytes, replica_count
from experiments.measuring.row import Where, gib
from experiments.measuring.series import Series
from experiments.measuring.textbook import Textbook
from experiments.measuring.timing import Call, WallTimer
from experiments.measuring.watched import watch
from experiments.measuring.whole import Wholes, whole_reasons, workspace_bytes
from experiments.record import together
from variants.contract.cost import Point
from variants.contract.scopes import WHOLE
from variants.view import TORCH_DTYPES

WATCHED = ("attend", "step")  # scopes whose single call is looked into


@dataclass(frozen=True)
class Timeable:
    """A call per replica, proofs of the first, and what a row says of the code; ``first_call_us`` where known.

    A row whose ``proofs`` fail is wrong and never timed, one whose ``checks`` fail is quarantined.
    """

    calls: tuple[Call, ...]
    kernel: str
    proofs: tuple[audit.Check, ...]
    plan_us: float
    first_call_us: float | None = None
    checks: tuple[audit.Check, ...] = ()
    transient_bytes: int | None = None


@dataclass(frozen=True)
class Proved:
    """What is known of a point before its scopes are looked at: ``attend`` of the first replica against the oracle.

    ``layers``, ``textbook``: what is known of its weights: see ``layer_error`` and ``Wholes.error``.
    """

    oracle: audit.Check
    first_call_us: float
    kv_error: float | None
    layers: dict[int, float]
    textbook: Textbook


def blocked_scopes(where: Where) -> dict[str, Failed]:
    """The scopes that must not even be tried where their point may be, and why."""
    found = {scope: scope_obstacle(where, scope) for scope in where.series.workload.scopes}
    return {scope: failed for scope, failed in found.items() if failed is not None}


def scope_obstacle(where: Where, scope: str) -> Failed | None:
    """Why a scope must not even be tried where its point may be; counted, not allocated."""
    device = where.device
    if device is None or scope in WATCHED:
        return None
    if scope not in WHOLE:
        reasons = part_reasons(scope, where.series.spec)
        return Failed("refused", together(reasons)) if reasons else None
    reasons = whole_reasons(scope, where.series, where.point, device.kind)
    if reasons:
        return Failed("refused", together(reasons))
    free = device.free_memory()
    parts = {"caches and weights": _held(where, free)} | workspaces(where)
    room = int(free * HEADROOM)
    if sum(parts.values()) <= room:
        return None
    sums = " + ".join(f"{name} {gib(size)}" for name, size in parts.items())
    return Failed("too_large", f"{scope} needs {gib(sum(parts.values()))}: {sums}; free: {gib(room)}")


def workspaces(where: Where) -> dict[str, int]:
    """Bytes beside weights and caches, part by part: all of a point's scopes are ready at the same time."""
    scopes = [scope for scope in where.series.workload.scopes if scope in WHOLE]
    counted = {scope: workspace_bytes(scope, where.series, where.point) for scope in scopes}
    return {f"{name} ({scope})": size for scope, parts in counted.items() for name, size in parts.items()}


def ready(
    series: Series, point: Point, scope: str, replicas: list[Replica], proved: Proved, device: Device
) -> Timeable:
    """Prepare a scope and prove its answer, before any clock that counts starts."""
    if scope in WATCHED:
        return _watched(scope, replicas, proved, device)
    if scope in ALONE:
        return _part(point, scope, replicas)
    return _whole(series, point, scope, replicas, proved, device.synchronize)


def _watched(scope: str, replicas: list[Replica], proved: Proved, device: Device) -> Timeable:
    """``attend`` or ``step``: what torch and the GPU do while each is called once, untimed."""
    first = replicas[0]
    plan, budget = first.planned.plan, error_budget(first.query.dtype)
    kernel = watch(partial(plan.attend, first.query), device)
    checks = (
        audit.kernel_ran(plan.kernel, plan.shows, kernel.names),
        audit.little_allocated(kernel.allocated, first.planned.cache.allocated_bytes),
    )
    if scope == "step":
        proofs = proved.oracle, audit.whole_layer(layer_error(first, proved.layers), budget)
        allocated = watch(first.step, device).allocated
        return Timeable(tuple(r.step for r in replicas), plan.kernel, proofs, first.plan_us, None, checks, allocated)
    allocated = kernel.allocated if first.planned.unpack is None else watch(first.attend, device).allocated
    calls, us = tuple(replica.attend for replica in replicas), proved.first_call_us
    return Timeable(calls, plan.kernel, (proved.oracle,), first.plan_us, us, checks, allocated)


def _part(point: Point, scope: str, replicas: list[Replica]) -> Timeable:
    taken = [Parts(replica) for replica in replicas]
    proof = audit.within("parts", taken[0].error(), error_budget(TORCH_DTYPES[point.dtype]))
    return Timeable(tuple(parts.call(scope) for parts in taken), "torch", (proof,), replicas[0].plan_us)


def _whole(
    series: Series, point: Point, scope: str, replicas: list[Replica], proved: Proved, synchronize: Callable[[], None]
) -> Timeable:
    start = time.perf_counter()
    made = Wholes(scope, series, point, replicas)
    plan_us = (time.perf_counter() - start) * 1e6 / len(replicas)
    outputs: list[Tensor] = []
    first_us = WallTimer(synchronize).time(lambda: outputs.append(made.passes[0](made.x)))
    proof = audit.within("reference", made.error(outputs[0], proved.textbook), made.budget(proved.kv_error))
    calls = tuple(partial(run, made.x) for run in made.passes)
    return Timeable(calls, made.passes[0].kernel, (proof,), plan_us, first_us)


def _held(where: Where, free: int) -> int:
    """What a point's replicas take."""
    return replica_count(where.series, where.point, free) * sum(replica_bytes(where.series, where.point).values())
