"""Predicted latency of a decode step: t = fixed + max(bytes / bandwidth, FLOPs / rate), refined where data demands it.

What the public latencies of A100, H100 and H200 (``fit``) demanded beyond that, and why:

* ``merge_us`` per doubling of the context beyond 1k: a longer sequence is cut into more pieces, whose partial results
  are merged in steps after the last piece has ended.
* ``tile_us``: query rows are loaded, padded and merged a tile of up to 64 at a time, whatever the context.
* ``cache_gbps``: a cache that fits the last-level cache is read from there when a graph is replayed. One that does not
  fit finds nothing there, because reading it in order evicts each line before its next use.

A softer maximum near the ridge, and a time per token for kernels that walk a sequence serially, made nothing better
out of sample where kernels are near the hardware, so they are not there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from experiments.planning.load import DTYPE, NAMED, Floats, Load, Shapes, load_of
from experiments.planning.profile import DeviceProfile, Kernel, kernel_of
from variants.contract.cost import Work
from variants.contract.dtype import Dtype

MERGE_TOKENS = 1024
TILE_ROWS = 64
GBPS, TFLOPS = 1e3, 1e6  # bytes and FLOPs per us
TEMPERATURES = ("cold", "warm")


@dataclass(frozen=True)
class Prediction:
    """Arrays [n]: times in us, and whether the memory sets the floor (else the matrix units do)."""

    latency_us: Floats
    floor_us: Floats
    memory: NDArray[np.bool_]

    @property
    def bound(self) -> list[str]:
        """Which ceiling sets each floor, ``memory`` or ``compute``."""
        return np.where(self.memory, "memory", "compute").tolist()  # type: ignore[no-any-return]


def latency_us(kernel: Kernel, load: Load, peak_tflops: float, cache_bytes: float) -> Floats:
    """Time of the attention kernels alone; ``cache_bytes`` 0 where nothing may be found in the last-level cache."""
    gbps = np.where(load.io_bytes <= cache_bytes, kernel.cache_gbps, kernel.read_gbps)
    memory = load.io_bytes / (gbps * GBPS)
    compute = load.flops / (peak_tflops * kernel.matmul_share * TFLOPS)
    merged = kernel.merge_us * np.log2(1 + load.context / MERGE_TOKENS)
    tile = kernel.tile_us * np.minimum(load.rows, TILE_ROWS) / TILE_ROWS
    return np.asarray(kernel.fixed_us + tile + merged + np.maximum(memory, compute), dtype=np.float64)


def predict(profile: DeviceProfile, kernel: str, load: Load, dtype: Dtype, temperature: str) -> Prediction:
    """Latency, floor and bound of attending; never below the floor, which is that of ``profile``'s own ceilings."""
    peak = profile.peak_tflops(dtype)
    cache_bytes = profile.cache_bytes.value if temperature == "warm" else 0.0
    time = latency_us(profile.kernels[kernel], load, peak, cache_bytes)
    memory = load.io_bytes / (profile.read_gbps.value * GBPS)
    compute = load.flops / (peak * profile.matmul_share.value * TFLOPS)
    floor = np.maximum(memory, compute)
    return Prediction(np.maximum(time, floor), floor, memory >= compute)


def projection_us(profile: DeviceProfile, matmuls: int, work: Work, dtype: Dtype) -> float:
    """Time of what a step does besides attending: ``matmuls`` products and the append, each a launch of its own.

    Nothing was fitted: their bytes and FLOPs at the device's ceilings, weights read from memory.
    """
    memory = work.io_bytes / (profile.read_gbps.value * GBPS)
    compute = work.flops / (profile.peak_tflops(dtype) * profile.matmul_share.value * TFLOPS)
    return profile.launch_us.value * (matmuls + 1) + max(memory, compute)


def prefill_us(profile: DeviceProfile, kernel: Kernel, matmuls: int, work: Work, projected: int, dtype: Dtype) -> float:
    """Time to fill the cache with a prompt: ``projected`` of the FLOPs in products with weights, the others attending.

    Nothing was fitted and nothing holds it against a measurement: products run at the device's matmul rate, attention
    at the rate that ``kernel`` reaches in decoding where its FLOPs bind, one after the other, each a launch of its own;
    their bytes overlap. What it leaves out (ramps, tails, softmax beyond the matmul units) makes it a low estimate.
    """
    peak = profile.peak_tflops(dtype) * TFLOPS
    compute = projected / (peak * profile.matmul_share.value) + (work.flops - projected) / (peak * kernel.matmul_share)
    return profile.launch_us.value * (matmuls + 2) + max(compute, work.io_bytes / (profile.read_gbps.value * GBPS))


def predict_shapes(profile: DeviceProfile, shapes: Shapes) -> Prediction:
    """Points of named layouts, bf16, as a replayed graph would find them: what fits the last-level cache is warm."""
    n = len(shapes.context)
    time, floor, memory = np.empty(n), np.empty(n), np.empty(n, dtype=np.bool_)
    for name, named in NAMED.items():
        at = shapes.layout == name
        if at.any():
            load = load_of(name, shapes)[at]
            told = predict(profile, kernel_of(named.geometry), load, DTYPE, "warm")
            time[at], floor[at], memory[at] = told.latency_us, told.floor_us, told.memory
    return Prediction(time, floor, memory)
