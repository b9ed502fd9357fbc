"""What the machine is, and what it can do at most."""

import platform
import subprocess
from collections.abc import Iterator
from functools import partial

import torch

from experiments.gpu_sections.rig import Rig, Row
from variants.contract.dtype import Dtype

ASKED = (
    "driver_version",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "clocks.max.mem",
    "power.limit",
    "temperature.gpu",
)


def env(rig: Rig) -> Iterator[Row]:
    """Versions, device, driver, clocks."""
    device = rig.device
    yield {
        "case": "machine",
        "status": "ok",
        "device": device.name,
        "processors": device.cores,
        "last_level_cache": device.last_level_cache,
        "memory": device.memory,
        "free": device.free_memory(),
        "versions": device.versions,
        "commit": device.commit,
        "platform": platform.platform(),
        **(_properties() if device.kind == "cuda" else {}),
    }
    yield clocks("clocks, idle")


def ceilings(rig: Rig) -> Iterator[Row]:
    """The best read kernel, cold and cache-resident, and products of the dtypes that caches have."""
    found = rig.ceilings
    yield {"case": "read", "status": "ok", "gbps": found.cold_gbps, "kernel": found.cold_kernel}
    yield {"case": "read, resident", "status": "ok", "gbps": found.resident_gbps, "kernel": found.resident_kernel}
    for dtype in (Dtype.BF16, Dtype.F16, Dtype.F32):
        yield {"case": f"matmul {dtype.value}", "status": "ok", "tflops": rig.bench.matmul_tflops(dtype)}
    yield clocks("clocks, after products")
    tiny = torch.zeros(1, device=rig.device.torch)
    call = partial(tiny.add_, 1)
    yield {"case": "one tiny kernel", "status": "ok", "us": min(rig.graph.time(call) for _ in range(20))}


def clocks(case: str) -> Row:
    """Clocks and temperature as nvidia-smi tells them; it is only asked, never told."""
    try:
        command = ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return {"case": case, "status": "refused", "reason": f"nvidia-smi does not answer: {error}"}
    values = [value.strip() for value in done.stdout.splitlines()[0].split(",")]
    return {"case": case, "status": "ok", **dict(zip(ASKED, values, strict=True))}


def _properties() -> Row:
    props = torch.cuda.get_device_properties(0)
    shared = getattr(props, "shared_memory_per_block_optin", None)  # which not every torch tells
    return {"capability": f"{props.major}.{props.minor}", "shared_memory": shared}
