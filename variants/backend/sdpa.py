"""PyTorch's scaled_dot_product_attention with a group's query heads packed into rows.

Packing is what lets the architecture show: torch's own ``enable_gqa`` expands or re-reads K and V per query head, so
that GQA costs as much as MHA. Here one kv head is read once for all rows of its group: q becomes [B, G, group * Q, K].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor
from torch.nn.attention import SDPBackend

from variants.contract.geometry import AttentionGeometry, Span, one_run, one_view_each
from variants.contract.keep import All
from variants.protocols import Attended, Plan, Request
from variants.view import TORCH_DTYPES, CacheView

KERNELS = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}
OPERATORS = {"math": "attention_math", **{name: f"{name}_attention" for name in ("flash", "efficient", "cudnn")}}


@dataclass(frozen=True)
class Sdpa:
    """One SDPA call over strided views of the cache.

    Torch's flash kernel wants keys and values of one width. Where V lies inside K the whole K row is passed as V; where
    it lies beside K in one row, and torch would not serve it by a fused kernel otherwise, as many columns of that row
    as K has. The surplus columns of the output are dropped, and the cache is still read once. On two cores the math
    path took 8 (prefill) to 12 times (decode) as long in bf16 for MLA's expanded keys of 192 and values of 128.
    """

    def refuses(self, request: Request) -> list[str]:
        """Ragged batches, paged or windowed caches, codes, and keys that are not one strided view."""
        layout, geometry = request.layout, request.geometry
        read = [layout.stream(name) for name in geometry.streams]
        checks = {
            "ragged batches: it reads [:length] of every sequence alike": request.ragged,
            f"storage {request.storage.kind}: it needs one run of slots per sequence": request.storage.kind
            != "contiguous",
            "windowed or compressed streams": not all(isinstance(s.keep, All) for s in read),
            "streams of codes": any(s.quant or not s.dtype.is_float for s in read),
            "keys or values that are not one strided view (it would have to copy)": not one_view_each(layout, geometry),
            f"a cache dtype other than the queries' {request.dtype.value}": any(s.dtype != request.dtype for s in read),
        }
        return [f"sdpa cannot do {what}" for what, holds in checks.items() if holds]

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Slice the views and ask torch which kernel will serve them.

        Valid while every sequence holds exactly ``max_length`` tokens: SDPA is told no lengths.
        """
        geometry.check(view.layout)
        key, mask = _joined(view, geometry.key)[:, :, :max_length], None
        if queries > 1:
            mask = _causal_rows(geometry.group_size, queries, max_length, key.device)
        values = [(value[:, :, :max_length], columns) for value, columns in _values(geometry, view)]
        kernels = [_kernel(geometry, key, value, mask, queries) for value, _ in values]
        chosen = next((number for number, kernel in enumerate(kernels) if kernel != "math"), 0)
        (value, columns), kernel = values[chosen], kernels[chosen]

        def attend(q: Tensor) -> Attended:
            rows = rearrange(q, "b q (g h) k -> b g (h q) k", g=geometry.num_kv_heads)
            o = F.scaled_dot_product_attention(rows, key, value, mask, scale=geometry.scale)
            return rearrange(o[..., columns], "b g (h q) v -> b q (g h) v", q=queries), None

        shows = (f"aten::_scaled_dot_product_{OPERATORS[kernel]}",) if kernel in OPERATORS else None
        return Plan(attend, f"sdpa:{kernel}", shows)


def _joined(view: CacheView, spans: Sequence[Span]) -> Tensor:
    joined = view.joined(spans)
    if joined is None:
        raise ValueError("sdpa cannot read keys or values that are not one strided view; refuses() says so")
    return joined


def _values(geometry: AttentionGeometry, view: CacheView) -> Iterator[tuple[Tensor, slice]]:
    """What may be passed as V, [B, G, T, W], and which columns of the output are V's; what reads least comes first."""
    if geometry.shares_state and len(geometry.value) == 1:
        start = _column_in_key(geometry)
        yield _joined(view, geometry.key), slice(start, start + geometry.d_v)
        return
    yield _joined(view, geometry.value), slice(0, geometry.d_v)
    run = one_run(view.layout, geometry.value)
    assert run is not None
    row = view.slabs[run.slab]
    start = run.stop - run.dtype.bytes(geometry.d_qk)
    if geometry.d_v < geometry.d_qk and start >= 0:
        wide = row[..., start : run.stop].view(TORCH_DTYPES[run.dtype])
        yield wide, slice(geometry.d_qk - geometry.d_v, geometry.d_qk)


def _column_in_key(geometry: AttentionGeometry) -> int:
    """Column of the key row where the (single) value span starts."""
    value, column = geometry.value[0], 0
    for span in geometry.key:
        if span.stream == value.stream and span.start <= value.start and value.stop <= span.stop:
            return column + value.start - span.start
        column += span.width
    raise ValueError(f"value span {value} lies in no key span")


def _causal_rows(group: int, queries: int, length: int, device: torch.device) -> Tensor:
    """Bottom-right causal mask for rows ordered (head of the group, query), [group * Q, T]."""
    position = torch.arange(length - queries, length, device=device)
    seen = torch.arange(length, device=device) <= position[:, None]
    return seen.repeat(group, 1)


def _kernel(geometry: AttentionGeometry, key: Tensor, value: Tensor, mask: Tensor | None, queries: int) -> str:
    """Name of the SDPA kernel that torch picks for these operands."""
    rows = key.new_empty(key.shape[0], geometry.num_kv_heads, geometry.group_size * queries, geometry.d_qk)
    choice = torch._fused_sdp_choice(rows, key, value, attn_mask=mask, scale=geometry.scale)
    return KERNELS.get(SDPBackend(choice), str(choice))


plugin = Sdpa
