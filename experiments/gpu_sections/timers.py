"""Whether two clocks agree: events around a call, and events around the replay of its graph."""

from collections.abc import Iterator

import numpy as np
import torch

from experiments.benching.caches import filled, plan, query
from experiments.gpu_sections.rig import Rig, Row
from experiments.measuring.timing import Call
from variants.contract.dtype import Dtype
from variants.noise import noise_
from variants.storage.contiguous import Contiguous

SAMPLES = 30
LONG_US = 1000.0  # launching takes tens of us, which events see and a graph leaves out
AGREE = 0.1  # share of the graph's time by which events may differ for a long call


def timers(rig: Rig) -> Iterator[Row]:
    """A large product, and attends of several lengths; both clocks in turns."""
    size = 64 * rig.scale.head_dim
    a = noise_(torch.empty(size, size, dtype=torch.bfloat16, device=rig.device.torch), seed=1)
    yield _row(rig, f"product of {size}", lambda: a @ a)
    batch = rig.scale.batches[-1]
    for context in rig.scale.contexts:
        yield _row(rig, f"attend gqa8 {batch} x {context}", attending(rig, "gqa8", batch, context))


def attending(rig: Rig, variant: str, batch: int, context: int) -> Call:
    """One attend of the backend under test; raises Refused."""
    spec = rig.scale.layer(rig.scale.few_heads).spec(variant)
    layout, geometry = spec.layout(Dtype.BF16), spec.geometry()
    cache = filled(Contiguous(), layout, context, context, 1, batch, rig.device.torch)
    q = query(geometry, Dtype.BF16, 1, batch, device=rig.device.torch)
    attend = plan(geometry, cache, context, rig.backend(rig.ours)).attend
    return lambda: attend(q)


def _row(rig: Rig, case: str, call: Call) -> Row:
    us: dict[str, list[float]] = {"events": [], "graph": []}
    for clock in (rig.events, rig.graph):  # captures and compiles outside what is kept
        clock.time(call)
    for _ in range(SAMPLES):
        us["events"].append(rig.events.time(call))
        us["graph"].append(rig.graph.time(call))
    events, graph = float(np.median(us["events"])), float(np.median(us["graph"]))
    agree = graph < LONG_US or abs(events / graph - 1) <= AGREE
    return {"case": case, "status": "ok" if agree else "wrong", "events_us": events, "graph_us": graph}
