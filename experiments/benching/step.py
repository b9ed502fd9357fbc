"""Our whole decode step against transformers' own layers with the same weights and the same cached tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from experiments.benching.caches import check, filled, replicas
from experiments.benching.points import BenchPoint, Result
from experiments.benching.race import Contender, Latency, race
from experiments.benching.sizes import Sizes
from experiments.benching.twins import CACHES, TheirStep, make_twin
from experiments.measuring.bench import Bench
from experiments.measuring.prepare import OTHER_NOISE
from variants.backend.numba_split_kv import NumbaSplitKV
from variants.contract.cost import Point, step_work
from variants.decode import plan_step
from variants.noise import noise_
from variants.storage.contiguous import Contiguous
from variants.view import TORCH_DTYPES

OURS = "ours"
ANGLE = 2.0**-24  # radians per position that an angle in float32 may be off: a frequency is rounded once
ROOM = 2**30  # bytes of weights and cache of ours; theirs hold two more copies of the cache


def step_latencies(point: BenchPoint, sizes: Sizes, bench: Bench) -> dict[str, Latency]:
    """Latencies of our step and of theirs on each kind of cache; ValueError where the outputs differ."""
    spec, one = sizes.spec(point.variant), Point(1, point.context, 1, point.dtype)
    layout = spec.layout(point.dtype)
    io_bytes = step_work(layout, spec.geometry(), spec.matmuls(), spec.hidden_size, one).io_bytes
    with torch.inference_mode():
        made = [_replica(point, sizes, n) for n in range(replicas(io_bytes, ROOM, sizes.replicas))]
        contenders = [Contender(OURS, [r.ours for r in made], io_bytes)]
        contenders += [_theirs(kind, [r.theirs[kind] for r in made], io_bytes) for kind in CACHES]
        return race(point.name, contenders, bench.timer, sizes.rounds, bench.sweep)


def speedups(point: BenchPoint, taken: dict[str, Latency]) -> list[Result]:
    """Their time over ours, for each kind of cache."""
    values = {f"speedup_vs_transformers_{kind}": taken[kind].p50_us / taken[OURS].p50_us for kind in CACHES}
    return [Result(point.name, metric, value, point.targets[metric]) for metric, value in values.items()]


@dataclass(frozen=True)
class _Replica:
    ours: Callable[[], torch.Tensor]
    theirs: dict[str, TheirStep]


def _replica(point: BenchPoint, sizes: Sizes, number: int) -> _Replica:
    """Weights, a cache in which the newest token is still noise, and one input: each step writes that token."""
    twin = make_twin(point.variant, sizes, point.dtype, seed=number)
    length = point.context
    cache = filled(Contiguous(), twin.ours.spec.layout(point.dtype), length, length, seed=number)
    x = noise_(torch.empty(1, 1, sizes.hidden_size, dtype=TORCH_DTYPES[point.dtype]), seed=number + OTHER_NOISE)
    position = torch.full((1, 1), length - 1)
    step = plan_step(twin.ours, cache, NumbaSplitKV(), length)
    replica = _Replica(lambda: step(x, position), {kind: twin.step(kind, cache.view, x) for kind in CACHES})
    if number == 0:
        ours = replica.ours()
        for kind, theirs in replica.theirs.items():
            check(f"transformers, {kind} cache", theirs(), ours, point.dtype, length * ANGLE)
            theirs.restore()
    return replica


def _theirs(kind: str, steps: Sequence[TheirStep], io_bytes: int) -> Contender:
    def restore() -> None:
        for step in steps:
            step.restore()

    return Contender(kind, steps, io_bytes, restore)
