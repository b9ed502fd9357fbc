"""Filled caches and queries, as many distinct ones as it takes to keep every read cold."""

import math

import torch
from torch import Tensor

from experiments.measuring.prepare import OTHER_NOISE, error_budget
from variants.backend.eager import Eager
from variants.backend.numba_split_kv import NumbaSplitKV
from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry
from variants.contract.layout import CacheLayout
from variants.decode import Refused
from variants.noise import noise_
from variants.protocols import Backend, KVCache, Plan, Request, StoragePolicy
from variants.view import TORCH_DTYPES, CacheView

CPU = torch.device("cpu")


def replicas(each: int, room: int, most: int, fewest: int = 2) -> int:
    """How many copies of ``each`` bytes to go round over: as many as ``room`` bytes hold, within limits."""
    return min(most, max(fewest, room // each))


def filled(
    storage: StoragePolicy,
    layout: CacheLayout,
    capacity: int,
    used: int,
    seed: int,
    batch: int = 1,
    device: torch.device = CPU,
) -> KVCache:
    """Sequences with room for ``capacity`` tokens each that hold ``used`` tokens of noise."""
    cache = storage.allocate(layout, batch, capacity, device)
    cache.fill_noise(used, seed)
    return cache


def query(
    geometry: AttentionGeometry, dtype: Dtype, seed: int, batch: int = 1, queries: int = 1, device: torch.device = CPU
) -> Tensor:
    """Noise [B, Q, H, K] that is in no cache."""
    shape = batch, queries, geometry.num_q_heads, geometry.d_qk
    return noise_(torch.empty(shape, dtype=TORCH_DTYPES[dtype], device=device), seed + OTHER_NOISE)


def plan(
    geometry: AttentionGeometry,
    cache: KVCache,
    length: int,
    backend: Backend | None = None,
    queries: int = 1,
    ragged: bool = False,
) -> Plan:
    """A backend (by default our CPU kernel) over a cache of ``length`` tokens; raises Refused with all reasons."""
    backend, layout = backend or NumbaSplitKV(), cache.view.layout
    device, dtype = cache.view.lengths.device.type, layout.streams[0].dtype
    reasons = backend.refuses(Request(geometry, layout, cache.policy, device, dtype, queries, ragged))
    if reasons:
        raise Refused("; ".join(reasons))
    return backend.plan(geometry, cache.view, length, queries)


def oracle(geometry: AttentionGeometry, view: CacheView, length: int, q: Tensor) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp that every path must return for these queries, in float32."""
    o, lse = Eager().plan(geometry, view, length, q.shape[1]).attend(q.float())
    assert lse is not None  # eager returns both
    return o, lse


def check(name: str, got: Tensor, wanted: Tensor, dtype: Dtype, more: float = 0.0) -> None:
    """Raise ValueError unless ``got`` is ``wanted`` within what rounding to ``dtype`` explains, and ``more``."""
    error, budget = relative_error(got, wanted), error_budget(TORCH_DTYPES[dtype]) + more
    if not error <= budget:
        raise ValueError(f"{name} answers wrongly: relative error {error:.3g} of at most {budget:.3g}")


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """Norm of the difference over the norm of what is wanted; infinite for another shape or anything not finite."""
    if got.shape != wanted.shape or not got.isfinite().all():
        return math.inf
    return float((got.float() - wanted.float()).norm() / wanted.float().norm())
