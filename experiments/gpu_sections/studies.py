"""Attend latency of the family over batch and context, cold, against the roofline and against other backends."""

import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from experiments.benching.caches import filled, oracle, plan, query
from experiments.gpu_sections.oracle import errors
from experiments.gpu_sections.rig import Rig, Row, Scale, one_line
from experiments.measuring.cold import is_cold
from experiments.measuring.prepare import error_budget
from experiments.measuring.statistics import Summary, summarise
from experiments.measuring.timing import Call, collect
from variants.contract.cost import Point, Work, attend_work, roofline
from variants.contract.dtype import Dtype
from variants.decode import Refused
from variants.protocols import Spec, StoragePolicy
from variants.storage.contiguous import Contiguous
from variants.storage.paged import Paged

FAMILY = ("mha", "gqa8", "gta8", "mla", "gla2", "mqa")
OURS = "ours"  # the rig knows its name
READ_SHARE = 0.85  # of the read ceiling: MHA and GQA at the middle batch and context or more
MLA_US, GUARDED_US = 140.0, 115.0  # MLA with many heads in the middle
FULL_HEADS, FULL_BATCH, FULL_CONTEXT = 128, 16, 8192  # where those microseconds were asked for
HEADROOM = 0.8  # of the free memory
COLD = 6  # times the last-level cache, that many bytes of distinct caches at least


@dataclass(frozen=True)
class Study:
    """One point of one backend, in bf16."""

    variant: str
    heads: int
    batch: int
    context: int
    backend: str = OURS
    options: Mapping[str, Any] = field(default_factory=dict)
    page: int = 0  # 0: one run per sequence

    @property
    def case(self) -> str:
        """For the row."""
        how = "".join(f" {name}={value}" for name, value in self.options.items()) + (
            f" page {self.page}" if self.page else ""
        )
        return f"{self.variant} {self.heads} {self.batch}x{self.context} {self.backend}{how}"


def plans(scale: Scale) -> list[Study]:
    """What matters most first, since a deadline may cut the rest."""
    (batch, context), few, many = scale.middle, scale.few_heads, scale.many_heads
    head = [Study("mla", many, batch, context), Study("mla", many, batch, context, options={"guarded": True})]
    head += [Study(v, few, batch, context) for v in FAMILY] + [Study("gla2", many, batch, context)]
    head += [Study(v, few, batch, context, page=64) for v in ("gqa8", "mla")]
    head += [Study(v, few, batch, context, "sdpa") for v in ("mha", "gqa8", "mqa", "mla")]
    head += [Study("gqa8", few, batch, context, "eager")]
    batches = sorted(scale.batches, key=lambda b: (b != batch, b))
    grid = [Study(v, few, b, c) for b in batches for c in scale.contexts for v in FAMILY]
    grid += [Study(v, many, b, context) for b in scale.batches for v in ("mla", "gla2")]
    grid += [Study(v, few, b, context, "sdpa") for b in scale.batches for v in ("mha", "gqa8")]
    grid += [Study(v, few, batch, context, "flex") for v in ("gqa8", "mha", "mqa")]  # each compiles for long
    return list({study.case: study for study in [*head, *grid]}.values())


def studies(rig: Rig) -> Iterator[Row]:
    """A row per point as it is measured; the ceilings are measured before any cache takes memory."""
    _ = rig.ceilings, rig.bench.matmul_tflops(Dtype.BF16)
    for study in plans(rig.scale):
        try:
            row = studied(rig, study)
        except Refused as refusal:
            row = {"status": "refused", "reason": str(refusal)}
        except torch.OutOfMemoryError as error:
            row = {"status": "oom", "reason": one_line(error)}
        except Exception as error:
            row = {"status": "error", "reason": one_line(error)}
        yield {"case": study.case, **row}


def studied(rig: Rig, study: Study) -> Row:
    """Prove, time, and hold against the roofline; raises Refused."""
    spec, storage = rig.scale.layer(study.heads).spec(study.variant), _storage(study)
    work = work_of(spec, study)
    each = storage.allocated_bytes(spec.layout(Dtype.BF16), study.batch, study.context)
    free = _free(rig)
    if each > free:
        gc.collect()  # slow, so only where something may still hold an earlier point's cache
        free = _free(rig)
    if each > free:
        return {"status": "too_large", "reason": f"the cache takes {each} B; free: {free} B"}
    wanted = COLD * (rig.device.last_level_cache or 0) // work.io_bytes + 1
    count = min(rig.scale.replicas, wanted, free // each)
    calls, error, kernel = _calls(rig, study, spec, storage, count)
    budget = error_budget(torch.bfloat16)
    if not error <= budget:
        return {"status": "wrong", "error": error, "budget": budget, "kernel": kernel}
    taken = collect(calls, rig.graph, rig.scale.rounds, rig.bench.sweep)
    reuse = count * work.io_bytes + rig.bench.sweep.bytes
    cold = {"cold": is_cold(reuse, rig.device.last_level_cache), "error": error, "kernel": kernel}
    return {"status": "ok", **numbers(rig, study, work, summarise(taken.us)), **cold}


def numbers(rig: Rig, study: Study, work: Work, summary: Summary) -> Row:
    """Latency and the rates and shares that follow from it, and the target where there is one."""
    read, matmul = rig.ceilings.cold_gbps, rig.bench.matmul_tflops(Dtype.BF16)
    us, floor = summary.p50, roofline(work, read, matmul)
    gbps = work.io_bytes / us / 1e3
    found: Row = {
        "latency_us": us,
        "p10_us": summary.p10,
        "p90_us": summary.p90,
        "samples": summary.samples,
        "gbps": gbps,
        "tflops": work.flops / us / 1e6,
        "read_share": gbps / read,
        "roofline_fraction": floor.us / us,
        "bound": floor.bound,
    }
    return found | _verdict(study, us, gbps / read)


def work_of(spec: Spec, study: Study) -> Work:
    """Bytes and FLOPs of one attend."""
    point = Point(study.batch, study.context, 1, Dtype.BF16)
    return attend_work(spec.layout(Dtype.BF16), spec.geometry(), spec.matmuls(), point)


def release(rig: Rig) -> None:
    """Give memory that nothing uses any more back to the device."""
    if rig.device.kind == "cuda":
        torch.cuda.empty_cache()


def _free(rig: Rig) -> int:
    release(rig)
    return int(rig.device.free_memory() * HEADROOM)


def _verdict(study: Study, us: float, share: float) -> Row:
    if study.backend != OURS or study.page or study.batch < FULL_BATCH or study.context < FULL_CONTEXT:
        return {}
    if study.variant in ("mha", "gqa8"):
        return {"target": f"read_share >= {READ_SHARE}", "met": share >= READ_SHARE}
    if (study.variant, study.heads, study.batch, study.context) == ("mla", FULL_HEADS, FULL_BATCH, FULL_CONTEXT):
        limit = GUARDED_US if study.options else MLA_US
        return {"target": f"latency_us < {limit:g}", "met": us < limit}
    return {}


def _storage(study: Study) -> StoragePolicy:
    return Paged(study.page) if study.page else Contiguous()


def _calls(rig: Rig, study: Study, spec: Spec, storage: StoragePolicy, count: int) -> tuple[list[Call], float, str]:
    """A call per replica, the relative error of the first one's first sequence, and the kernel's name."""
    geometry, layout, device = spec.geometry(), spec.layout(Dtype.BF16), rig.device.torch
    backend = rig.backend(rig.ours if study.backend == OURS else study.backend, study.options)
    calls: list[Call] = []
    error, kernel = 0.0, ""
    for number in range(count):
        cache = filled(storage, layout, study.context, study.context, number, study.batch, device)
        q = query(geometry, Dtype.BF16, number, study.batch, device=device)
        planned = plan(geometry, cache, study.context, backend)
        if number == 0:
            exact = oracle(geometry, cache.view.sequence(0), study.context, q[:1])
            error, kernel = errors((planned.attend(q)[0][:1], None), exact)[0], planned.kernel
        calls.append(_bound(planned.attend, q))
    return calls, error, kernel


def _bound(attend: Any, q: torch.Tensor) -> Call:
    return lambda: attend(q)
