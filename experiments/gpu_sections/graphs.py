"""A captured attend and a captured step can be replayed: same answer, same cache, and new inputs are seen."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from experiments.benching.caches import filled, plan, query, relative_error
from experiments.gpu_sections.rig import Rig, Row
from experiments.measuring.prepare import error_budget, fill_weights
from variants.contract.dtype import Dtype
from variants.decode import plan_step
from variants.modules import hollow
from variants.noise import noise_
from variants.storage.paged import Paged
from variants.view import CacheView

SHAPES = ("gqa8", "mla")
PAGE = 64


@dataclass(frozen=True)
class Captured:
    """A call that fills what ``output`` returns from ``x``, over a cache that it may write."""

    call: Callable[[], Tensor]
    x: Tensor
    view: CacheView


def graphs(rig: Rig) -> Iterator[Row]:
    """Attend and step of two shapes over pages."""
    for variant in SHAPES:
        yield {"case": f"attend {variant}", **_replayed(rig, _attend(rig, variant))}
        yield {"case": f"step {variant}", **_replayed(rig, _step(rig, variant))}


def _replayed(rig: Rig, given: Captured) -> Row:
    """Replays see each input and answer as plain runs do, but for rounding; the first input's repeat bit for bit."""
    inputs = {"first": given.x.clone(), "other": noise_(torch.empty_like(given.x), seed=99)}
    plain: dict[str, Tensor] = {}
    for name, x in inputs.items():
        given.x.copy_(x)
        plain[name] = given.call().clone()
    outputs: list[Tensor] = []

    def call() -> None:
        outputs[:] = [given.call()]

    replay = rig.captured(call)

    def replayed(name: str) -> list[Tensor]:
        outputs[0].fill_(torch.nan)
        given.x.copy_(inputs[name])
        replay()
        return [outputs[0].clone(), *(slab.clone() for slab in given.view.slabs), given.view.lengths.clone()]

    first, again, other, back = (replayed(name) for name in ("first", "first", "other", "first"))
    budget = error_budget(torch.bfloat16)
    seen = {
        "first": relative_error(first[0], plain["first"]) <= budget,
        "again": _equal(first, again),
        "other": relative_error(other[0], plain["other"]) <= budget,
        "back": _equal(first, back),
    }
    return {"status": "ok" if all(seen.values()) else "wrong", **seen}


def _attend(rig: Rig, variant: str) -> Captured:
    spec, (batch, context) = rig.scale.layer(rig.scale.few_heads).spec(variant), rig.scale.middle
    layout, geometry = spec.layout(Dtype.BF16), spec.geometry()
    cache = filled(Paged(PAGE), layout, context, context, 1, batch, rig.device.torch)
    q = query(geometry, Dtype.BF16, 1, batch, device=rig.device.torch)
    attend = plan(geometry, cache, context, rig.backend(rig.ours)).attend
    return Captured(lambda: attend(q)[0], q, cache.view)


def _step(rig: Rig, variant: str) -> Captured:
    spec, (batch, context) = rig.scale.layer(rig.scale.few_heads).spec(variant), rig.scale.middle
    module = hollow(spec)
    assert isinstance(module, torch.nn.Module)
    fill_weights(module, torch.bfloat16, rig.device.torch, seed=1)
    cache = filled(Paged(PAGE), spec.layout(Dtype.BF16), context, context, 1, batch, rig.device.torch)
    step = plan_step(module, cache, rig.backend(rig.ours), context)
    x = noise_(torch.empty(batch, 1, spec.hidden_size, dtype=torch.bfloat16, device=rig.device.torch), seed=1)
    position = torch.full((batch, 1), context - 1, device=rig.device.torch)
    return Captured(lambda: step(x, position), x, cache.view)


def _equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
