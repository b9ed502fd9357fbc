"""Stands in for ``flash_attn.cute``: the signature of Dao-AILab/flash-attention at 0251105 (version 4).

flash_attn/cute/interface.py; the assertions are those of ``_flash_attn_fwd``, on Blackwell where ``qv`` is given and on
Hopper elsewhere (there it cannot split).
"""

import torch

from tests.backend.fakes.exact import attention, tokens


def flash_attn_varlen_func(
    q,
    k,
    v,
    qv=None,
    cu_seqlens_q=None,
    cu_seqlens_k=None,
    max_seqlen_q=None,
    max_seqlen_k=None,
    min_seqlen_k=None,
    seqused_q=None,
    seqused_k=None,
    gather_kv_indices=None,
    page_table=None,
    softmax_scale=None,
    causal=False,
    window_size=(None, None),
    learnable_sink=None,
    softcap=0.0,
    num_splits=1,
    pack_gqa=None,
    deterministic=False,
    score_mod=None,
    score_mod_bwd=None,
    mask_mod=None,
    block_sparse_tensors=None,
    aux_tensors=None,
    aux_scalars=None,
    return_lse=False,
    scheduler_metadata=None,
    seqlen_k_per_split=None,
    disable_scheduler_metadata=False,
):
    unused = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, min_seqlen_k, seqused_q, gather_kv_indices, learnable_sink)
    also_unused = (score_mod, mask_mod, block_sparse_tensors, aux_tensors, scheduler_metadata)
    assert all(argument is None for argument in (*unused, *also_unused))
    assert q.dtype in (torch.float16, torch.bfloat16)
    assert q.dtype == k.dtype == v.dtype
    for cache in (k, v):  # else the library copies
        assert cache.stride(-1) == 1
        assert all(stride % 8 == 0 for stride in cache.stride()[:-1])
        assert cache.data_ptr() % 16 == 0
    batch, queries, heads, width = q.shape
    value_width = v.shape[-1]
    assert k.shape == (*v.shape[:-1], width)
    assert width % 8 == value_width % 8 == 0
    if qv is None:
        assert max(width, value_width) <= 256
    else:
        assert (width, value_width) == (64, 512)
        assert qv.shape == (batch, queries, heads, value_width)
        assert window_size == (None, None)
    assert num_splits == 1
    assert seqused_k.dtype == torch.int32
    assert seqused_k.stride(0) == 1
    assert int(seqused_k.max()) <= max_seqlen_k
    if page_table is not None:
        assert page_table.dtype == torch.int32
        assert page_table.stride(-1) == 1
    left, right = window_size
    assert right in (None, 0)
    scale = (width + (0 if qv is None else value_width)) ** -0.5 if softmax_scale is None else softmax_scale
    out = torch.empty(batch, queries, heads, value_width, dtype=q.dtype)
    lse = torch.empty(batch, queries, heads)
    for b in range(batch):
        keys, values = (tokens(cache, b, int(seqused_k[b]), page_table) for cache in (k, v))
        scored = keys if qv is None else torch.cat([keys, values], dim=-1)
        asked = q[b] if qv is None else torch.cat([q[b], qv[b]], dim=-1)
        o, lse[b] = attention(asked, scored, values, scale, causal or right == 0, -1 if left is None else left)
        out[b] = o.to(q.dtype)
    if qv is None:
        lse = lse.transpose(1, 2).contiguous()
    return out, lse if return_lse else None
