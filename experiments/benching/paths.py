"""How torch alone would attend over a cache: SDPA, SDPA with packed heads, and two products around a softmax.

Each in both axis orders, since which one suits a kernel is the kernel's own affair.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

from variants.backend.sdpa import Sdpa
from variants.contract.geometry import AttentionGeometry
from variants.view import CacheView

Attend = Callable[[Tensor], Tensor]  # q [B, Q, H, K] -> o [B, Q, H, V], for Q = 1
PLAIN, PACKED, PRODUCTS = "sdpa", "packed sdpa", "matmul"


def torch_paths(geometry: AttentionGeometry, view: CacheView, length: int) -> dict[str, Attend]:
    """Every path by name, ``matmul, token-major`` say, over the first ``length`` tokens of a contiguous cache.

    Token-major paths read a copy of the cache; where all streams have one head the two orders are the same bytes.
    """
    orders = {"head-major": view}
    if any(slab.shape[1] > 1 for slab in view.slabs):
        orders["token-major"] = token_major(view)
    made = {f"{path}, {order}": _PATHS[path](geometry, v, length) for order, v in orders.items() for path in _PATHS}
    return made if geometry.group_size > 1 else {name: p for name, p in made.items() if not name.startswith(PACKED)}


def token_major(view: CacheView) -> CacheView:
    """The same cache lying [P, S, heads, W] in memory, in the same shape."""
    slabs = (slab.transpose(1, 2).contiguous().transpose(1, 2) for slab in view.slabs)
    return replace(view, slabs=tuple(slabs))


def _plain(geometry: AttentionGeometry, view: CacheView, length: int) -> Attend:
    """As a torch user writes it; V that opens K's row goes in as the whole row, as torch's fused kernels want it."""
    key, value = _operands(geometry, view, length)
    value = key if geometry.value == geometry.key[:1] else value
    grouped = geometry.group_size > 1

    def attend(q: Tensor) -> Tensor:
        heads = q.transpose(1, 2)
        o = F.scaled_dot_product_attention(heads, key, value, scale=geometry.scale, enable_gqa=grouped)
        return o.transpose(1, 2)[..., : geometry.d_v]

    return attend


def _packed(geometry: AttentionGeometry, view: CacheView, length: int) -> Attend:
    plan = Sdpa().plan(geometry, view, length)
    return lambda q: plan.attend(q)[0]


def _products(geometry: AttentionGeometry, view: CacheView, length: int) -> Attend:
    key, value = _operands(geometry, view, length)

    def attend(q: Tensor) -> Tensor:
        rows = rearrange(q, "b 1 (g h) k -> b g h k", g=geometry.num_kv_heads) * geometry.scale
        weights = torch.matmul(rows, key.transpose(-1, -2)).softmax(dim=-1)
        return rearrange(torch.matmul(weights, value), "b g h v -> b 1 (g h) v")

    return attend


def _operands(geometry: AttentionGeometry, view: CacheView, length: int) -> tuple[Tensor, Tensor]:
    """K [B, G, T, K] and V [B, G, T, V] as views of the cache; ValueError where they are not one."""
    key, value = view.joined(geometry.key), view.joined(geometry.value)
    if key is None or value is None:
        raise ValueError("torch paths need keys and values that are one strided view each")
    return key[:, :, :length], value[:, :, :length]


_PATHS: dict[str, Callable[[AttentionGeometry, CacheView, int], Attend]] = {
    PLAIN: _plain,
    PACKED: _packed,
    PRODUCTS: _products,
}
