"""Stands in for ``flash_attn_interface``: the signature of Dao-AILab/flash-attention at 0251105 (version 3).

hopper/flash_attn_interface.py; the assertions are the checks of hopper/flash_api.cpp (mha_fwd) on Hopper.
"""

import torch

from tests.backend.fakes.exact import attention, tokens


def flash_attn_with_kvcache(
    q,
    k_cache,
    v_cache,
    k=None,
    v=None,
    qv=None,
    rotary_cos=None,
    rotary_sin=None,
    cache_seqlens=None,
    cache_batch_idx=None,
    cache_leftpad=None,
    page_table=None,
    cu_seqlens_q=None,
    cu_seqlens_k_new=None,
    max_seqlen_q=None,
    rotary_seqlens=None,
    q_descale=None,
    k_descale=None,
    v_descale=None,
    softmax_scale=None,
    causal=False,
    window_size=(-1, -1),
    attention_chunk=0,
    softcap=0.0,
    rotary_interleaved=True,
    scheduler_metadata=None,
    num_splits=0,
    pack_gqa=None,
    sm_margin=0,
    return_softmax_lse=False,
):
    unused = (k, v, rotary_cos, rotary_sin, cache_batch_idx, cache_leftpad, cu_seqlens_q, cu_seqlens_k_new)
    also_unused = (max_seqlen_q, rotary_seqlens, q_descale, k_descale, v_descale, scheduler_metadata)
    assert all(argument is None for argument in (*unused, *also_unused))
    assert q.dtype in (torch.float16, torch.bfloat16)
    assert q.dtype == k_cache.dtype == v_cache.dtype
    assert q.stride(-1) == k_cache.stride(-1) == v_cache.stride(-1) == 1
    batch, queries, heads, width = q.shape
    value_width = v_cache.shape[-1]
    assert k_cache.shape == (*v_cache.shape[:-1], width)
    assert width % 8 == value_width % 8 == 0
    assert width <= 256
    if value_width != width:
        assert (128 < width <= 192 and 96 < value_width <= 128) or (width <= 64 and value_width <= 512)
    if qv is not None:
        assert width <= 64
        assert value_width >= 256
        assert qv.dtype == q.dtype
        assert qv.stride(-1) == 1
        assert qv.shape == (batch, queries, heads, value_width)
    assert cache_seqlens.dtype == torch.int32
    assert cache_seqlens.shape == (batch,)
    if page_table is None:
        assert len(k_cache) == batch
    else:
        assert page_table.dtype == torch.int32
        assert page_table.stride(-1) == 1
        assert len(page_table) == batch
    left, right = window_size
    assert right in (-1, 0)
    scale = (width + (0 if qv is None else value_width)) ** -0.5 if softmax_scale is None else softmax_scale
    out = torch.empty(batch, queries, heads, value_width, dtype=q.dtype)
    lse = torch.empty(batch, heads, queries)
    for b in range(batch):
        keys, values = (tokens(cache, b, int(cache_seqlens[b]), page_table) for cache in (k_cache, v_cache))
        scored = keys if qv is None else torch.cat([keys, values], dim=-1)
        asked = q[b] if qv is None else torch.cat([q[b], qv[b]], dim=-1)
        o, natural = attention(asked, scored, values, scale, causal or right == 0, left)
        out[b], lse[b] = o.to(q.dtype), natural.T
    return (out, lse, None, None) if return_softmax_lse else out
