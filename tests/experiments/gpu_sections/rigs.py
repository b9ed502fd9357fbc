"""A GPU rig without a GPU: our CPU kernel on tiny shapes, clocks that say what they are told, replays that call."""

import itertools
from typing import Any

from experiments.gpu_sections.rig import Rig, Scale
from experiments.measuring.timing import Call
from tests.experiments.builders import Scripted, bench, ceilings, device

TINY = Scale(
    head_dim=16,
    few_heads=16,
    many_heads=32,
    batches=(1, 2),
    contexts=(16, 48),
    lengths=(1, 0, 20, 33),
    rounds=2,
    replicas=2,
    workers=0,
)


def called(call: Call) -> Call:
    """Capturing runs a call once; its replay is the call."""
    call()
    return call


def rig(us: float = 50.0, **changes: Any) -> Rig:
    """Every clock says ``us``; 100 GB/s and 1 TFLOP/s are the roof."""
    clock = Scripted(itertools.repeat(us))
    given = {"device": device(), "ours": "numba_split_kv", "scale": TINY, "events": clock, "graph": clock}
    made = Rig(**{**given, "captured": called, **changes})
    made.__dict__["bench"] = bench(made.device, made.events, matmul=1.0)
    made.__dict__["ceilings"] = ceilings(cold=100.0)
    return made
