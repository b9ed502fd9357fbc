"""One decode step that several processes run together: proved on few tokens, then timed, its collectives apart.

Every rank runs the same lines in the same order, decides by what all ranks know, and returns the same row.
"""

import copy
import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from experiments.measuring import audit
from experiments.measuring.device import Device
from experiments.measuring.laps import ClockedRanks
from experiments.measuring.prepare import HEADROOM, OTHER_NOISE, error_budget, fill_weights, replica_bytes
from experiments.measuring.row import Where, gib, known, timed_columns, work_of
from experiments.measuring.series import Series
from experiments.measuring.statistics import summarise
from experiments.measuring.timing import make_timer, timer_reasons
from experiments.measuring.workload import Cell
from experiments.record import Measurement, point_key, together
from variants.contract.cost import Point
from variants.contract.ranks import Turns
from variants.decode import Refused
from variants.modules import hollow
from variants.noise import noise_
from variants.parallel.context import ContextDecoder, ContextStep, context_reasons, plan_context
from variants.parallel.ranks import LIBRARIES
from variants.parallel.shards import Sharded, shard
from variants.protocols import Attention, Spec
from variants.view import TORCH_DTYPES

STEP = Cell("step", "warm")  # one set of caches and weights, used again and again
WARM_UPS = 3
PROVED = 67  # tokens: enough for several blocks on each of a few ranks, and a part of one
PROJECTED = 2  # times the rounding of attending alone, for the projections around it


@dataclass(frozen=True)
class Shared:
    """A point that all ranks measure together. ``series`` is one rank's, ``whole`` the spec of all."""

    series: Series
    whole: Spec
    device: Device
    ranks: ClockedRanks
    turns: Turns
    batch: int
    context: int

    def held(self, rank: int) -> int:
        """Tokens of a sequence that a cp rank caches."""
        return self.turns.held(self.context, rank)

    @property
    def where(self) -> Where:
        """The point as the first cp rank sees it, which caches most."""
        dtype = self.series.workload.dtype
        return Where(self.series, Point(self.batch, self.held(0), 1, dtype), self.device, torch.get_num_threads())

    def columns(self) -> dict[str, Any]:
        """What a row says before anything runs. A rank measured alone is another point, with another key."""
        where, ranks = self.where, self.ranks
        columns = known(where, STEP.scope, STEP.temperature) | {"context": self.context, "cp": ranks.cp}
        place = {name: columns[name] for name in ("scope", "temperature", "batch", "context", "threads")}
        divided = {"cp": ranks.cp, "block": self.turns.block, "library": LIBRARIES[self.device.kind]}
        key = point_key({**self.series.identity(), **place, "device": self.device.kind, "together": divided})
        return {**columns, "key": key, "series": f"{self.series.name}-cp{ranks.cp}"}


class TooLarge(Refused):
    """Some rank lacks the memory."""


def measure(shared: Shared) -> tuple[Measurement, Tensor | None]:
    """The row of a point and, if it was timed, samples in us [2, rounds]: of the step, and of its collectives."""
    try:
        with torch.no_grad():
            return _measured(shared)
    except Refused as refusal:
        status = "too_large" if isinstance(refusal, TooLarge) else "refused"
        return Measurement(**shared.columns(), status=status, reason=str(refusal)), None


def _measured(shared: Shared) -> tuple[Measurement, Tensor | None]:
    _check(shared)
    columns, whole = shared.columns(), _weights(shared)
    part = shard(whole, shared.ranks)
    error, budget = _error(shared, whole, part), PROJECTED * error_budget(TORCH_DTYPES[part.dtype])
    del whole  # only the shard is to be in memory beside the cache
    step, sizes = _planned(shared, part)
    us, numbers, first = _timed(shared, step, [error, *sizes])
    worst, allocated, predicted = float(numbers[:, 0].max()), *(int(n) for n in numbers[:, 1:].sum(dim=0))
    checks = (audit.matches_oracle(worst, budget), audit.allocated_as_predicted(allocated, predicted))
    if failed := audit.failures(checks):
        return Measurement(**columns, status="wrong", reason=failed), None
    return Measurement(**columns, **_clocked(shared, us, step, first), audits="; ".join(map(str, checks))), us


def _check(shared: Shared) -> None:
    """Raise Refused, on all ranks, where they must not even try; the backend is asked when a step is planned."""
    series, layout = shared.series, shared.series.spec.layout(shared.series.workload.kv_dtype)
    reasons = [
        *series.policy.refuses(layout),
        *shared.device.refuses(series.workload.dtype),
        *timer_reasons(series.timer.kind, shared.device.kind),
        *context_reasons(layout, shared.ranks, shared.turns),
    ]
    if reasons:
        raise Refused(together(reasons))
    on_one = shared.device.kind == "cpu"  # ranks share a machine's memory; each has a GPU to itself
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if on_one else 1
    point = shared.where.point
    uncut = 3 * point.dtype.bytes(shared.whole.weight_elements)  # while they are cut, with room for a copy in float32
    needs = here * (uncut + sum(replica_bytes(series, point).values()))
    free = int(_everyones(shared, [HEADROOM * shared.device.free_memory()]).min())
    if needs > free:
        raise TooLarge(f"needs {gib(needs)} for {here} ranks; free: {gib(free)}")


def _weights(shared: Shared) -> Attention:
    """The whole layer with noise for weights, the same on every rank."""
    module = hollow(shared.whole)
    assert isinstance(module, nn.Module)
    workload = shared.series.workload
    fill_weights(module, TORCH_DTYPES[workload.dtype], shared.device.torch, workload.seed)
    return module


def _error(shared: Shared, whole: Attention, part: Sharded) -> float:
    """Relative distance of the step after ``PROVED`` tokens from the textbook layer in float32, on one sequence."""
    series, turns, device = shared.series, shared.turns, shared.device.torch
    dtype, room = TORCH_DTYPES[part.dtype], turns.held(PROVED, 0)
    x = noise_(
        torch.empty(1, PROVED, shared.whole.hidden_size, dtype=dtype, device=device), series.workload.seed + OTHER_NOISE
    )
    cache = series.policy.allocate(part.spec.layout(series.workload.kv_dtype), 1, room, device)
    decoder = ContextDecoder(part, cache, series.backend, shared.ranks, turns)
    decoder.fill(x[:, :-1])
    y = decoder.decode(x[:, -1:])
    assert isinstance(whole, nn.Module)
    exact = copy.deepcopy(whole).float().reference(x.float())[:, -1:]
    return float((y.float() - exact).norm() / exact.norm())


def _planned(shared: Shared, part: Sharded) -> tuple[ContextStep, list[float]]:
    """The step at the point's length on a cache of noise; its bytes as allocated and as predicted."""
    series, held = shared.series, shared.held(shared.ranks.cp_rank)
    layout = part.spec.layout(series.workload.kv_dtype)
    cache = series.policy.allocate(layout, shared.batch, max(1, held), shared.device.torch)
    if held:
        cache.fill_noise(held, series.workload.seed + 1 + dist.get_rank())
    step = plan_context(part, cache, series.backend, shared.context, shared.ranks, shared.turns)
    predicted = series.policy.allocated_bytes(layout, shared.batch, max(1, held))
    return step, [float(cache.allocated_bytes), float(predicted)]


def _timed(shared: Shared, step: ContextStep, numbers: list[float]) -> tuple[Tensor, Tensor, float]:
    """Samples in us [2, rounds]: steps by the rank that ends last, collectives by the one that waits least.

    Also every rank's ``numbers``, and the first call in us.
    """
    ranks, device, rounds = shared.ranks, shared.device, shared.series.timer.rounds
    x = torch.empty(shared.batch, 1, shared.whole.hidden_size, dtype=TORCH_DTYPES[step.attention.dtype])
    x = noise_(x.to(device.torch), shared.series.workload.seed + OTHER_NOISE)
    position = torch.full((shared.batch, 1), shared.context - 1, device=device.torch)
    timer = make_timer(shared.series.timer.kind, device.kind, device.synchronize)
    first, steps, collectives = 0.0, [], []
    for number in range(WARM_UPS + rounds):
        ranks.laps.clear()
        dist.barrier()
        us = timer.time(lambda: step(x, position))
        spent = ranks.spent_us()
        first = first or us
        if number >= WARM_UPS:
            steps.append(us)
            collectives.append(spent)
    said = _everyones(shared, [*steps, *collectives, *numbers])
    both = torch.stack([said[:, :rounds].amax(dim=0), said[:, rounds : 2 * rounds].amin(dim=0)])
    return both, said[:, 2 * rounds :], first


def _everyones(shared: Shared, numbers: list[float]) -> Tensor:
    """What every process says, [processes, numbers] in float64."""
    own = torch.tensor(numbers, dtype=torch.float64, device=shared.device.torch)
    said = own.new_empty(dist.get_world_size(), len(numbers))
    dist.all_gather(list(said), own)
    return said.cpu()


def _clocked(shared: Shared, us: Tensor, step: ContextStep, first: float) -> dict[str, Any]:
    """Columns that a clock gives. No ceiling is known for ranks that share a machine, and so no roofline."""
    work, summary = work_of(shared.where, STEP.scope), summarise(us[0].numpy()[:, None])
    return {
        "status": "ok",
        **timed_columns(summary, work),
        "first_call_us": first,
        "collective_us": float(us[1].median()),
        "reuse_bytes": work.io_bytes,
        "kernel": f"{step.local.plan.kernel} + {LIBRARIES[shared.device.kind]}",
    }
