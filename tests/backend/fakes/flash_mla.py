"""Stands in for the package ``flash_mla``: the signatures of deepseek-ai/FlashMLA at 9241ae3.

flash_mla/flash_mla_interface.py; the assertions are the checks of csrc/api/dense_decode.h.
"""

import dataclasses

import torch

from tests.backend.fakes.exact import attention, tokens


@dataclasses.dataclass
class FlashMLASchedMeta:
    """The schedule of a first call: valid while shapes and lengths stay what they were."""

    made_for: tuple[object, ...] | None = None


def get_mla_metadata(*args, **kwargs):
    return FlashMLASchedMeta(), None


def flash_mla_with_kvcache(
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits=None,
    softmax_scale=None,
    causal=False,
    is_fp8_kvcache=False,
    indices=None,
    attn_sink=None,
    extra_k_cache=None,
    extra_indices_in_kvcache=None,
    topk_length=None,
    extra_topk_length=None,
):
    assert isinstance(tile_scheduler_metadata, FlashMLASchedMeta)
    assert num_splits is None
    unused = (indices, attn_sink, extra_k_cache, extra_indices_in_kvcache, topk_length, extra_topk_length)
    assert all(argument is None for argument in unused)  # those of sparse attention
    assert not is_fp8_kvcache
    assert q.dtype in (torch.bfloat16, torch.float16)
    assert k_cache.dtype == q.dtype
    assert cache_seqlens.dtype == block_table.dtype == torch.int32
    assert cache_seqlens.is_contiguous()
    assert q.stride(-1) == k_cache.stride(-1) == block_table.stride(-1) == 1
    batch, queries, heads, width = q.shape
    _, page, kv_heads, key_width = k_cache.shape
    assert width == key_width
    assert width in (576, 512)
    assert head_dim_v == 512
    assert page == 64
    assert heads % kv_heads == 0
    made_for = (tuple(q.shape), tuple(k_cache.shape[1:]), causal, tuple(cache_seqlens.tolist()))
    tile_scheduler_metadata.made_for = tile_scheduler_metadata.made_for or made_for
    assert tile_scheduler_metadata.made_for == made_for, "the schedule is for other shapes or lengths"
    scale = width**-0.5 if softmax_scale is None else softmax_scale
    out = torch.empty(batch, queries, heads, head_dim_v, dtype=q.dtype)
    lse = torch.empty(batch, heads, queries)
    for b in range(batch):
        k = tokens(k_cache, b, int(cache_seqlens[b]), block_table)
        o, natural = attention(q[b], k, k[..., :head_dim_v], scale, causal)
        out[b], lse[b] = o.to(q.dtype), natural.T
    lse[lse.isneginf()] = torch.inf
    return out, lse
