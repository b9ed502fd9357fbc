"""Stands in for the package ``flashinfer``: the signatures of flashinfer-ai/flashinfer 0.6.18 at fb28d72.

flashinfer/decode.py; the assertions are the checks there and in csrc/batch_decode.cu. The MLA wrapper is beside it.
"""

import math
from itertools import pairwise

import torch

from tests.backend.fakes.exact import attention, tokens

WORKSPACE = 128 * 2**20
GROUPS_WITHOUT_TENSOR_CORES = (1, 2, 3, 4, 6, 8)


class BatchDecodeWithPagedKVCacheWrapper:
    def __init__(
        self,
        float_workspace_buffer,
        kv_layout="NHD",
        use_cuda_graph=False,
        use_tensor_cores=False,
        paged_kv_indptr_buffer=None,
        paged_kv_indices_buffer=None,
        paged_kv_last_page_len_buffer=None,
        backend="auto",
        jit_args=None,
    ):
        assert float_workspace_buffer.nbytes >= WORKSPACE
        assert not float_workspace_buffer.any(), "zeros for its first use"
        assert kv_layout in ("NHD", "HND")
        assert not use_cuda_graph  # then it would need its buffers
        assert jit_args is None
        assert backend in ("auto", "fa2", "fa3", "trtllm-gen", "cute-dsl")
        self._kv_layout, self._cores, self._device = kv_layout, use_tensor_cores, float_workspace_buffer.device

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **kwargs):
        """Positional arguments after ``page_size`` are deprecated."""
        numbers = (num_qo_heads, num_kv_heads, head_dim, page_size)
        return self._plan_impl(indptr, indices, last_page_len, *numbers, **kwargs)

    def _plan_impl(
        self,
        indptr,
        indices,
        last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim,
        page_size,
        *,
        pos_encoding_mode="NONE",
        window_left=-1,
        window_right=0,
        logits_soft_cap=None,
        q_data_type="float16",
        kv_data_type=None,
        o_data_type=None,
        data_type=None,
        sm_scale=None,
        rope_scale=None,
        rope_theta=None,
        non_blocking=True,
        block_tables=None,
        seq_lens=None,
        fixed_split_size=None,
        disable_split_kv=False,
        q_len_per_req=1,
    ):
        assert indptr.dtype == indices.dtype == last_page_len.dtype == torch.int32
        assert pos_encoding_mode == "NONE"
        assert window_right == 0
        assert logits_soft_cap is None
        assert data_type is None  # deprecated
        assert len(indptr) == len(last_page_len) + 1
        assert len(indices) == int(indptr[-1])
        assert ((last_page_len >= 1) & (last_page_len <= page_size)).all()
        lengths = (indptr.diff() - 1) * page_size + last_page_len
        assert self._cores or (q_len_per_req == 1 and num_qo_heads // num_kv_heads in GROUPS_WITHOUT_TENSOR_CORES)
        assert q_len_per_req == 1 or int(lengths.min()) >= q_len_per_req
        assert head_dim in (64, 128, 256)
        self._pages = [indices[a:b] for a, b in pairwise(indptr.tolist())]
        self._lengths, self._q_len, self._window_left = lengths.tolist(), q_len_per_req, window_left
        self._dtypes = (q_data_type, q_data_type if kv_data_type is None else kv_data_type)
        self._shape = (num_qo_heads, num_kv_heads, head_dim, page_size)
        self._scale = head_dim**-0.5 if sm_scale is None else sm_scale

    def run(
        self,
        q,
        paged_kv_cache,
        *args,
        q_scale=None,
        k_scale=None,
        v_scale=None,
        out=None,
        lse=None,
        return_lse=False,
        enable_pdl=None,
        window_left=None,
        sinks=None,
        q_len_per_req=None,
        skip_softmax_threshold_scale_factor=None,
        kv_cache_sf=None,
    ):
        assert not args
        assert q_len_per_req is None  # deprecated
        key, value = paged_kv_cache
        assert key.stride() == value.stride(), "both are addressed by the key's strides"
        assert (q.dtype, key.dtype) == (q.dtype, value.dtype) == self._dtypes
        if self._kv_layout == "HND":
            key, value = key.transpose(1, 2), value.transpose(1, 2)
        heads, kv_heads, width, page = self._shape
        assert key.shape[1:] == value.shape[1:] == (page, kv_heads, width)
        assert q.shape == (len(self._lengths) * self._q_len, heads, width)
        found = []
        for b, (pages, length) in enumerate(zip(self._pages, self._lengths, strict=True)):
            keys, values = (tokens(cache, 0, length, pages[None]) for cache in (key, value))
            asked = q[b * self._q_len : (b + 1) * self._q_len]
            found.append(attention(asked, keys, values, self._scale, self._q_len > 1, self._window_left))
        o, natural = (torch.cat(parts) for parts in zip(*found, strict=True))
        base_2 = (natural / math.log(2)).float()
        return (o.to(q.dtype), base_2) if return_lse else o.to(q.dtype)
