"""Stands in for ``flash_attn.flash_attn_interface``: the signature of Dao-AILab/flash-attention at v2.8.3.

The assertions are the checks of csrc/flash_attn/flash_api.cpp (mha_fwd_kvcache), and that nothing would be padded.
"""

import torch

from tests.backend.fakes.exact import attention, tokens


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    block_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    rotary_interleaved=True,
    alibi_slopes=None,
    num_splits=0,
    return_softmax_lse=False,
):
    unused = (k, v, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, alibi_slopes)
    assert all(argument is None for argument in unused)
    assert q.dtype in (torch.float16, torch.bfloat16)
    assert q.dtype == k_cache.dtype == v_cache.dtype
    assert q.stride(-1) == k_cache.stride(-1) == v_cache.stride(-1) == 1
    batch, queries, heads, width = q.shape
    assert k_cache.shape == v_cache.shape
    assert k_cache.shape[-1] == width <= 256
    assert width % 8 == 0, "the library would pad, and so copy, the cache"
    assert heads % k_cache.shape[2] == 0
    assert cache_seqlens.dtype == torch.int32
    assert cache_seqlens.shape == (batch,)
    if block_table is None:
        assert len(k_cache) == batch
    else:
        assert block_table.dtype == torch.int32
        assert block_table.stride(-1) == 1
        assert k_cache.shape[1] % 256 == 0
    left, right = window_size
    assert right in (-1, 0)
    scale = width**-0.5 if softmax_scale is None else softmax_scale
    out, lse = torch.empty_like(q), torch.empty(batch, heads, queries)
    for b in range(batch):
        keys, values = (tokens(cache, b, int(cache_seqlens[b]), block_table) for cache in (k_cache, v_cache))
        o, natural = attention(q[b], keys, values, scale, causal or right == 0, left)
        out[b], lse[b] = o.to(q.dtype), natural.T
    lse[lse.isneginf()] = torch.inf
    return (out, lse) if return_softmax_lse else out
