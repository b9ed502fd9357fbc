"""Stands in for ``flashinfer.mla``: the signatures of flashinfer-ai/flashinfer 0.6.18 at fb28d72.

flashinfer/mla/_core.py, without fp8 and the cutlass kernel, and the checks of csrc/batch_mla_run.cu.
"""

import math

import torch

from tests.backend.fakes.exact import attention, tokens
from tests.backend.fakes.flashinfer import WORKSPACE


class BatchMLAPagedAttentionWrapper:
    def __init__(
        self,
        float_workspace_buffer,
        use_cuda_graph=False,
        qo_indptr=None,
        kv_indptr=None,
        kv_indices=None,
        kv_len_arr=None,
        backend="auto",
    ):
        assert float_workspace_buffer.nbytes >= WORKSPACE
        assert not use_cuda_graph
        assert backend in ("auto", "fa2", "fa3")

    def plan(
        self,
        qo_indptr,
        kv_indptr,
        kv_indices,
        kv_len_arr,
        num_heads,
        head_dim_ckv,
        head_dim_kpe,
        page_size,
        causal,
        sm_scale,
        q_data_type,
        kv_data_type,
        use_profiler=False,
    ):
        given = (qo_indptr, kv_indptr, kv_indices, kv_len_arr)
        assert all(array.dtype == torch.int32 for array in given)
        assert kv_data_type in (torch.float16, torch.bfloat16)
        assert len(qo_indptr) == len(kv_indptr) == len(kv_len_arr) + 1
        assert (-(-kv_len_arr // page_size) == kv_indptr.diff()).all()
        self._given, self._causal, self._scale = given, causal, sm_scale
        self._widths, self._dtypes = (head_dim_ckv, head_dim_kpe), (q_data_type, kv_data_type)
        self._heads, self._page = num_heads, page_size

    def run(
        self,
        q_nope,
        q_pe,
        ckv_cache,
        kpe_cache,
        out=None,
        lse=None,
        return_lse=False,
        profiler_buffer=None,
        kv_len=None,
        page_table=None,
        return_lse_base_on_e=False,
        o_scale=None,
        *,
        ckv_scale=None,
        ckv_scale_arr=None,
        kpe_scale=None,
    ):
        starts, offsets, indices, lengths = self._given
        for q, cache, width in zip((q_nope, q_pe), (ckv_cache, kpe_cache), self._widths, strict=True):
            assert (q.dtype, cache.dtype) == self._dtypes
            assert q.shape == (int(starts[-1]), self._heads, width)
            assert cache.shape[1:] == (self._page, width)
            assert q.stride(-1) == cache.stride(-1) == 1
        found = []
        for b, length in enumerate(lengths.tolist()):
            pages = indices[None, offsets[b] : offsets[b + 1]]
            ckv, kpe = (tokens(cache[:, :, None], 0, length, pages) for cache in (ckv_cache, kpe_cache))
            asked = torch.cat([q_nope, q_pe], dim=-1)[starts[b] : starts[b + 1]]
            found.append(attention(asked, torch.cat([ckv, kpe], dim=-1), ckv, self._scale, self._causal))
        o, natural = (torch.cat(parts) for parts in zip(*found, strict=True))
        kept = (natural if return_lse_base_on_e else natural / math.log(2)).float()
        return (o.to(q_nope.dtype), kept) if return_lse else o.to(q_nope.dtype)
