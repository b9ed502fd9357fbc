"""What storing keys and values as codes costs in accuracy, on the very weights that are timed."""

import torch
from torch import Tensor

from experiments.measuring.device import Device
from experiments.measuring.series import Series
from variants.backend.eager import Eager
from variants.contract.codes import CODES
from variants.contract.dtype import Dtype
from variants.decode import plan_step
from variants.noise import APART, noise_
from variants.protocols import Attention, Entries
from variants.storage.contiguous import Contiguous
from variants.view import TORCH_DTYPES

TOKENS = 1024  # of one sequence: the error is a mean over tokens and hardly changes with their number


def coding_error(series: Series, attention: Attention, context: int, device: Device) -> float | None:
    """Norm of (attended over codes - attended over the same entries in the workload's dtype) over that of the latter.

    Entries and queries are standard normal; None where the cache holds no codes.
    """
    workload = series.workload
    if workload.kv_dtype not in CODES:
        return None
    tokens = min(context, TOKENS)
    coded, exact = (
        _attended(series, attention, dtype, tokens, device) for dtype in (workload.kv_dtype, workload.dtype)
    )
    return float((coded - exact).norm() / exact.norm())


def _attended(series: Series, attention: Attention, dtype: Dtype, tokens: int, device: Device) -> Tensor:
    layout = series.spec.layout(dtype)
    cache = Contiguous().allocate(layout, 1, tokens, device.torch)
    cache.write(_entries(series, tokens, device), torch.arange(tokens, device=device.torch)[None])
    step = plan_step(attention, cache, Eager(), tokens)
    shape = 1, 1, step.geometry.num_q_heads, step.geometry.d_qk
    q = noise_(torch.empty(shape, device=device.torch), series.workload.seed + 1)
    return step.attend(q.to(TORCH_DTYPES[series.workload.dtype]))[0].float()


def _entries(series: Series, tokens: int, device: Device) -> Entries:
    """Noise for every stream, the same whatever the cache holds it in."""
    streams = series.spec.layout(series.workload.dtype).entries
    return {
        s.name: noise_(torch.empty(1, tokens, s.heads, s.width, device=device.torch), series.workload.seed, APART * i)
        for i, s in enumerate(streams)
    }
