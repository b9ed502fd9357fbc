"""One untimed call looked into: which operators and kernels run, and how many bytes it asks the allocator for."""

from dataclasses import dataclass

import torch
from torch.autograd.profiler_legacy import (
    profile as operators,
)  # the newer one starts kineto: seconds, and lines on stderr

from experiments.measuring.device import Device
from experiments.measuring.timing import Call


@dataclass(frozen=True)
class Watched:
    """``names`` of torch's operators (``aten::...``) and, on a GPU, of kernels (``kernel:...``).

    ``allocated``: bytes asked for during the call, freed again or not, so at least what was needed at any one time.
    """

    names: frozenset[str]
    allocated: int


def watch(call: Call, device: Device) -> Watched:
    """Call once. On a CPU this takes a few milliseconds; on a GPU the first look of a process takes seconds."""
    return _on_gpu(call, device) if device.kind == "cuda" else _on_cpu(call)


def _on_cpu(call: Call) -> Watched:
    with operators(profile_memory=True) as seen:
        call()
    events = seen.function_events or []
    # an operator's own bytes may be negative: what it frees is what another one, or itself, had asked for
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in events)
    return Watched(frozenset(event.name for event in events), allocated)


def _on_gpu(call: Call, device: Device) -> Watched:
    from torch.profiler import ProfilerActivity, profile

    device.synchronize()
    before = _asked_for()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        call()
        device.synchronize()
    allocated = _asked_for() - before
    events = seen.events() or []
    return Watched(frozenset(f"kernel:{e.name}" if e.device_type.name == "CUDA" else e.name for e in events), allocated)


def _asked_for() -> int:
    """Bytes that torch's CUDA allocator has handed out so far."""
    return int(torch.cuda.memory_stats().get("allocated_bytes.all.allocated", 0))
