"""Everything a point needs before a clock starts: weights, caches, plans, and a proof that the answer is right."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.measuring.device import Device
from experiments.measuring.newest import look_at_newest
from experiments.measuring.series import Series
from experiments.measuring.timing import WallTimer
from variants.backend.eager import Eager
from variants.contract.cost import Point
from variants.contract.layout import CacheLayout
from variants.decode import Step, plan_step
from variants.modules import hollow
from variants.noise import APART, noise_
from variants.pages import advise
from variants.protocols import Attention, KVCache, StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.view import TORCH_DTYPES

HEADROOM = 0.9  # share of the free memory that a point may plan to use
REPLICA_SHARE = 3  # replicas may take at most a third of the free memory
REPLICA_BYTES = 4 * 2**30  # and at most this much: filling more would take longer than measuring
ROUNDINGS = 4  # of the output dtype's epsilon: rounded weights, rounded products and the rounded output
# Between seeds: caches have a workload's own, and what is asked another one, for a query that repeats a cached key sees
# little but that key. A second question, weights and the newest tokens follow: a row of weights that repeats an input
# or a latent makes one number that outweighs all others, and a value that is the query looks like a key.
OTHER_NOISE = 1 << 20
SECOND_QUESTION, OF_WEIGHTS, OF_NEWEST = 2 * OTHER_NOISE, 3 * OTHER_NOISE, 4 * OTHER_NOISE
REPLICAS_APART = 730_001  # elements between the beginnings of two replicas in one seed's noise
ACCUMULATION = 1e-5  # relative error that float32 sums over many tokens may add


@dataclass(frozen=True)
class Replica:
    """One set of weights and one filled cache, planned for one step; ``attend`` and ``step`` are what is timed.

    ``query`` [B, Q, H, K] is what ``attend`` is asked; ``step`` gets ``x`` [B, Q, D] at ``position`` [B, Q].
    """

    attend: Callable[[], object]
    step: Callable[[], Tensor]
    planned: Step
    query: Tensor
    plan_us: float
    x: Tensor
    position: Tensor


def replica_bytes(series: Series, point: Point) -> dict[str, int]:
    """Bytes that one replica of a point takes, part by part; counted, not allocated."""
    policy, spec, read = series.policy, series.spec, read_layout(series)
    unpacks = spec.unpacked() is not None
    parts = {
        "cache": policy.allocated_bytes(spec.layout(series.workload.kv_dtype), point.batch, point.context),
        "block table": policy.table_bytes(point.batch, point.context),
        "decompressed keys and values": read_policy(series).allocated_bytes(read, point.batch, point.context)
        if unpacks
        else 0,
        "weights": weight_bytes(series),
    }
    return {name: size for name, size in parts.items() if size}


def weight_bytes(series: Series) -> int:
    """Bytes of one replica's weights."""
    return series.workload.dtype.bytes(series.spec.weight_elements)


def oracle_bytes(series: Series, point: Point) -> int:
    """Bytes of one sequence's keys and values in float32, which the check against eager needs for a moment."""
    return 4 * sum(s.heads * s.width for s in read_layout(series).streams) * point.context


def read_layout(series: Series) -> CacheLayout:
    """What the backend reads: the cache, or what it is decompressed to, which is as the weights make it."""
    unpacked = series.spec.unpacked()
    if unpacked is None:
        return series.spec.layout(series.workload.kv_dtype)
    return unpacked.layout(series.workload.dtype)


def read_policy(series: Series) -> StoragePolicy:
    """Where what the backend reads lies: in the cache, or in the one run per sequence that it is decompressed to."""
    return series.policy if series.spec.unpacked() is None else Contiguous()


def replica_count(series: Series, point: Point, free: int) -> int:
    """As many replicas as asked for, one to open each cold round, and as ``free`` bytes hold, at least one."""
    each = sum(replica_bytes(series, point).values())
    return max(1, min(series.timer.replicas + openers(series), min(REPLICA_BYTES, free // REPLICA_SHARE) // each))


def weights(series: Series, device: Device, number: int) -> Attention:
    """The module of a replica with noise for weights; built on no device first: nothing is initialised twice."""
    module = hollow(series.spec)
    assert isinstance(module, torch.nn.Module)
    fill_weights(
        module, TORCH_DTYPES[series.workload.dtype], device.torch, series.workload.seed, number * REPLICAS_APART
    )
    return module


def openers(series: Series) -> int:
    """Replicas that are in no sample: see ``cold.opened``."""
    return int("cold" in series.workload.temperatures)


def prepare(series: Series, point: Point, device: Device, modules: Sequence[Attention]) -> list[Replica]:
    """A replica per module, no two alike."""
    return [_replica(series, point, device, number, module) for number, module in enumerate(modules)]


@dataclass(frozen=True)
class Proof:
    """The replica's very first call: how long it took (it may compile) and how far it is from the oracle."""

    first_call_us: float
    relative_error: float


def prove(replica: Replica, synchronize: Callable[[], None]) -> Proof:
    """Call ``attend`` for the first time, by the wall clock, and hold that very output to eager's.

    The error is the norm of (backend - eager) over the norm of eager, same view and queries, worst sequence; infinite
    if something is not finite, or if the output has not a row for every query.
    """
    outputs: list[Tensor] = []
    us = WallTimer(synchronize).time(lambda: outputs.append(replica.planned.attend(replica.query)[0]))
    return Proof(us, relative_error(replica, outputs[0]))


def relative_error(replica: Replica, o: Tensor) -> float:
    """How far an output is from eager's on the same view and queries: see ``prove``."""
    if o.shape != (*replica.query.shape[:-1], replica.planned.geometry.d_v):
        return math.inf
    return max(_sequence_error(replica, o, row) for row in range(len(o)))


def error_budget(dtype: torch.dtype) -> float:
    """What rounding alone explains: a few epsilons of the dtype plus float32 accumulation."""
    return ROUNDINGS * torch.finfo(dtype).eps + ACCUMULATION


def _replica(series: Series, point: Point, device: Device, number: int, attention: Attention) -> Replica:
    dtype, seed = TORCH_DTYPES[point.dtype], series.workload.seed
    cache = _cache(series, point, device, number)
    start = time.perf_counter()
    planned = plan_step(attention, cache, series.backend, point.context, point.queries)
    plan_us = (time.perf_counter() - start) * 1e6
    rows, geometry = (point.batch, point.queries), planned.geometry
    x = torch.empty(*rows, series.spec.hidden_size, dtype=dtype, device=device.torch)
    q = torch.empty(*rows, geometry.num_q_heads, geometry.d_qk, dtype=dtype, device=device.torch)
    for asked in (x, q):
        noise_(asked, seed + OTHER_NOISE, start=APART * number)
    look_at_newest(planned, q, seed + OF_NEWEST, start=REPLICAS_APART * number)
    first = point.context - point.queries
    position = torch.arange(first, point.context, device=device.torch).expand(point.batch, -1)
    return Replica(lambda: planned.attend(q), lambda: planned(x, position), planned, q, plan_us, x, position)


def fill_weights(module: torch.nn.Module, dtype: torch.dtype, device: torch.device, seed: int, start: int = 0) -> None:
    """Bring a module from the meta device with noise for weights that keeps activations near 1, and no gradients."""
    module.to(dtype).to_empty(device=device).requires_grad_(False)
    for number, (name, parameter) in enumerate(module.named_parameters()):
        advise(parameter.data)
        if "norm" in name:
            parameter.data.fill_(1.0)
        else:
            noise_(parameter.data, seed + OF_WEIGHTS, start + number * APART, 1 / math.sqrt(parameter.shape[-1]))


def _cache(series: Series, point: Point, device: Device, number: int) -> KVCache:
    layout = series.spec.layout(series.workload.kv_dtype)
    cache = series.policy.allocate(layout, point.batch, point.context, device.torch)
    cache.fill_noise(point.context, series.workload.seed, number * REPLICAS_APART)
    return cache


def _sequence_error(replica: Replica, o: Tensor, row: int) -> float:
    planned, one = replica.planned, slice(row, row + 1)
    q = replica.query[one] if o.dtype == torch.float64 else replica.query[one].float()
    oracle = Eager().plan(planned.geometry, planned.view.sequence(row), planned.length, q.shape[1])
    exact, _ = oracle.attend(q)
    apart = (o[one].to(exact.dtype) - exact).norm()
    error = (apart / exact.norm()).item() if apart else 0.0  # two zeros agree
    return error if math.isfinite(error) else math.inf
