"""Which options of the backend under test are fastest, on the shapes that matter, raced over the same caches."""

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.benching.caches import filled, plan, query
from experiments.benching.race import Contender, race
from experiments.gpu_sections.rig import Rig, Row
from experiments.gpu_sections.studies import Study, release, work_of
from experiments.measuring.timing import Call
from variants.contract.dtype import Dtype
from variants.decode import Refused
from variants.protocols import KVCache, Spec
from variants.storage.contiguous import Contiguous

DEFAULT = "default"
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    *({"chunk": tokens} for tokens in (256, 512, 1024, 2048, 4096)),
    {"partials": "bf16"},
    {"guarded": True},
)


def tiles(rig: Rig) -> Iterator[Row]:
    """For each shape a row per set of options: its time over the default's, below 1 where it is faster."""
    (batch, context), few, many = rig.scale.middle, rig.scale.few_heads, rig.scale.many_heads
    longest = rig.scale.contexts[-1]
    shapes = [
        Study("mla", many, batch, context),
        Study("gqa8", few, batch, context),
        Study("mla", many, 1, context),
        Study("gqa8", few, 1, longest),
        Study("gla2", many, batch, context),
        Study("mha", few, batch, context),
    ]
    for shape in shapes:
        yield from _raced(rig, shape)
        release(rig)


def _raced(rig: Rig, shape: Study) -> Iterator[Row]:
    spec = rig.scale.layer(shape.heads).spec(shape.variant)
    caches = [_cache(rig, shape, spec, number) for number in range(2)]
    contenders: list[Contender] = []
    for options in OPTIONS:
        name = " ".join(f"{key}={value}" for key, value in options.items()) or DEFAULT
        try:
            calls = [_call(rig, shape, spec, cache, options) for cache in caches]
        except Refused as refusal:
            yield {"case": f"{shape.case} {name}", "status": "refused", "reason": str(refusal)}
        else:
            contenders.append(Contender(name, calls, work_of(spec, shape).io_bytes))
    if not contenders:
        return
    taken = race(shape.case, contenders, rig.graph, rig.scale.rounds, rig.bench.sweep, opening_s=0)
    for name, latency in taken.items():
        ratio = latency.p50_us / taken[DEFAULT].p50_us
        yield {"case": f"{shape.case} {name}", "status": "ok", "latency_us": latency.p50_us, "over_default": ratio}


def _cache(rig: Rig, shape: Study, spec: Spec, number: int) -> KVCache:
    layout, tokens = spec.layout(Dtype.BF16), shape.context
    return filled(Contiguous(), layout, tokens, tokens, number, shape.batch, rig.device.torch)


def _call(rig: Rig, shape: Study, spec: Spec, cache: KVCache, options: Mapping[str, Any]) -> Call:
    geometry = spec.geometry()
    q = query(geometry, Dtype.BF16, 1, shape.batch, device=rig.device.torch)
    attend = plan(geometry, cache, shape.context, rig.backend(rig.ours, options)).attend
    return lambda: attend(q)
