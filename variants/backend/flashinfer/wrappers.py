"""The library's wrappers, planned on a cache view; nothing of the cache is copied but its page table."""

import math
from functools import cache

import torch
from einops import rearrange
from jaxtyping import Int, Shaped
from torch import Tensor

from variants.contract.geometry import AttentionGeometry
from variants.contract.keep import Window
from variants.protocols import Attended, Plan
from variants.view import CacheView

WORKSPACE = 128 * 2**20  # bytes, as the library recommends
LN_2 = math.log(2)
TENSOR_CORES_FROM = 4  # query heads per kv head; the other kernel lacks groups such as 5 and 7


def grouped(
    backend: str, geometry: AttentionGeometry, view: CacheView, lengths: Int[Tensor, "B"], queries: int
) -> Plan:
    """MHA, GQA, MQA. The log-sum-exp is of base 2, and making it natural is a small kernel of its own."""
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    key, value = view.joined(geometry.key), view.joined(geometry.value)
    assert key is not None  # refuses() says when it is
    keep = view.layout.stream(geometry.key[0].stream).keep
    cores = queries > 1 or geometry.group_size >= TENSOR_CORES_FROM
    wrapper = BatchDecodeWithPagedKVCacheWrapper(_workspace(key.device), "HND", use_tensor_cores=cores, backend=backend)
    wrapper.plan(
        *_pages(view, lengths),
        geometry.num_q_heads,
        geometry.num_kv_heads,
        geometry.d_qk,
        key.shape[2],
        window_left=keep.size - 1 if isinstance(keep, Window) else -1,
        q_data_type=key.dtype,
        kv_data_type=key.dtype,
        sm_scale=geometry.scale,
        **({"q_len_per_req": queries} if queries > 1 else {}),
    )

    def attend(q: Tensor) -> Attended:
        o, lse = wrapper.run(rearrange(q, "b q h k -> (b q) h k"), (key, value), return_lse=True)
        return _batched(o, queries), _batched(lse.mul_(LN_2), queries)

    return Plan(attend, f"flashinfer:batch_decode[{backend}{', tensor cores' if cores else ''}]", shows=())


def latent(backend: str, geometry: AttentionGeometry, view: CacheView, lengths: Int[Tensor, "B"], queries: int) -> Plan:
    """Absorbed MLA: key = latent + rope, value = latent."""
    from flashinfer.mla import BatchMLAPagedAttentionWrapper

    ckv, kpe = (view.span(span)[:, 0] for span in geometry.key)
    wrapper = BatchMLAPagedAttentionWrapper(_workspace(ckv.device), backend=backend)
    starts, pages, _ = _pages(view, lengths)
    wrapper.plan(
        queries * torch.arange(len(lengths) + 1, dtype=torch.int32, device=ckv.device),
        starts,
        pages,
        lengths.to(ckv.device),
        geometry.num_q_heads,
        ckv.shape[-1],
        kpe.shape[-1],
        ckv.shape[1],
        queries > 1,
        geometry.scale,
        ckv.dtype,
        ckv.dtype,
    )

    def attend(q: Tensor) -> Attended:
        rows = rearrange(q, "b q h k -> (b q) h k")
        nope, pe = rows[..., : geometry.d_v], rows[..., geometry.d_v :]
        o, lse = wrapper.run(nope, pe, ckv, kpe, return_lse=True, return_lse_base_on_e=True)
        return _batched(o, queries), _batched(lse, queries)

    return Plan(attend, f"flashinfer:batch_mla[{backend}]", shows=())


def _pages(view: CacheView, lengths: Int[Tensor, "B"]) -> tuple[Tensor, Tensor, Tensor]:
    """Where each sequence's pages start [B + 1], the pages in use end to end, tokens in each last page [B]; int32."""
    assert view.block_table is not None  # refuses() says when it is
    table, size = view.block_table, view.slabs[0].shape[2]
    pages = (lengths + size - 1) // size
    starts = torch.nn.functional.pad(pages.cumsum(0), (1, 0)).int()
    used = torch.arange(table.shape[1]) < pages[:, None]
    return starts.to(table.device), table[used.to(table.device)], ((lengths - 1) % size + 1).to(table.device)


def _batched(rows: Shaped[Tensor, "_BQ *rest"], queries: int) -> Tensor:
    return rearrange(rows, "(b q) ... -> b q ...", q=queries)


@cache
def _workspace(device: torch.device) -> Tensor:
    """One for all plans of a device, which run one after the other; the library wants zeros at first."""
    return torch.zeros(WORKSPACE, dtype=torch.uint8, device=device)
