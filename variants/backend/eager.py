"""The oracle: gather, softmax in float, nothing clever. Any layout, device and storage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange
from torch import Tensor

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import All, Window
from variants.protocols import Attended, Plan, Request
from variants.view import ALL_HEADS, CacheView

MADE_BYTES = 2**24  # of keys and values in float at once: tensors that malloc reuses, not 1 GiB of new pages per call


@dataclass(frozen=True)
class Eager:
    """Scores, softmax and sums in float32, or float64 when the queries are float64."""

    grows: ClassVar[bool] = True

    def refuses(self, request: Request) -> list[str]:
        """Codes scaled by runs of tokens or too narrow for torch, and entries that are not one per token."""
        odd = [s.name for s in request.layout.streams if s.dtype is Dtype.INT4 or (s.quant and s.quant.axis != "width")]
        sparse = [s.name for s in request.layout.streams if not isinstance(s.keep, All | Window)]
        checks = {
            f"eager decodes int8 and fp8_e4m3 with scales per column block; not streams {odd}": odd,
            f"eager cannot say which tokens streams {sparse} cover: they do not keep every one": sparse,
        }
        return [reason for reason, holds in checks.items() if holds]

    def plan(self, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int = 1) -> Plan:
        """Nothing to prepare."""
        geometry.check(view.layout)
        return Plan(lambda q: _attend(q, geometry, view, max_length), "eager", shows=("aten::einsum",))


def _attend(q: Tensor, geometry: AttentionGeometry, view: CacheView, max_length: int) -> Attended:
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    seen = _seen(view, geometry, q.shape[1], max_length)  # [B, Q, T]
    grouped = rearrange(q.to(exact), "b q (g h) k -> b q g h k", g=geometry.num_kv_heads)
    some = _heads_at_once(geometry, seen.shape[0] * seen.shape[2] * exact.itemsize)
    starts = range(0, geometry.num_kv_heads, some)
    parts = [
        _attend_heads(grouped[:, :, start : start + some], start, seen, geometry, view, max_length) for start in starts
    ]
    o, lse = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return rearrange(o, "b q g h v -> b q (g h) v").to(q.dtype), rearrange(lse, "b q g h -> b q (g h)")


def _heads_at_once(geometry: AttentionGeometry, column_bytes: int) -> int:
    """KV heads whose keys and values are laid out at the same time: as ``MADE_BYTES`` holds, at least one."""
    head_bytes = column_bytes * (geometry.d_qk + geometry.d_v)
    return max(1, min(geometry.num_kv_heads, MADE_BYTES // max(1, head_bytes)))


def _attend_heads(
    q: Tensor, first: int, seen: Tensor, geometry: AttentionGeometry, view: CacheView, max_length: int
) -> tuple[Tensor, Tensor]:
    """Of G KV heads from the ``first`` on: q [B, Q, G, H, K] -> o [B, Q, G, H, V] and lse [B, Q, G, H]."""
    heads = slice(first, first + q.shape[2])
    used = seen.any(dim=1)[:, None, :, None]  # unused slots may hold NaN, and 0 * NaN is NaN
    k, v = (
        _laid_out(view, spans, heads, max_length, q.dtype).where(used, 0) for spans in (geometry.key, geometry.value)
    )
    scores = torch.einsum("bqghk,bgtk->bqght", q, k) * geometry.scale
    scores = scores.where(seen[:, :, None, None, :], -torch.inf)
    top = scores.amax(dim=-1, keepdim=True)
    weights = (scores - top.where(top.isfinite(), 0)).exp()  # all 0 where a row sees no key at all
    total = weights.sum(dim=-1, keepdim=True)
    # not exp(scores - lse): at a score of 741 455 a float32 lse is off by up to 0.03, and so is every weight
    o = torch.einsum("bqght,bgtv->bqghv", weights / total.clamp(min=1), v)  # the largest weight is 1, so total >= 1
    return o, (top + total.log()).squeeze(-1)  # -inf for a row that sees no key


def _seen(view: CacheView, geometry: AttentionGeometry, queries: int, max_length: int) -> Tensor:
    """Which key each query sees: query i of row b stands at position lengths[b] - Q + i (bottom-right causal)."""
    key = view.positions(max_length)[:, None]  # [B, 1, T]
    back = torch.arange(queries, device=view.lengths.device) - queries
    position = (view.lengths[:, None] + back)[..., None]  # [B, Q, 1]
    seen = key <= position
    for name in geometry.streams:
        keep = view.layout.stream(name).keep
        if isinstance(keep, Window):
            seen &= key > position - keep.size  # the current token is one of the window's
    return seen


def _laid_out(view: CacheView, spans: Sequence[Span], heads: slice, max_length: int, dtype: torch.dtype) -> Tensor:
    """Spans of some KV heads end to end as [B, G, T, W]; a one-head stream is broadcast to each of them."""
    shared = [view.layout.stream(span.stream).heads == 1 for span in spans]
    parts = [
        view.read(span, max_length, dtype, ALL_HEADS if one else heads) for span, one in zip(spans, shared, strict=True)
    ]
    count = heads.stop - heads.start
    return torch.cat([part.expand(-1, count, -1, -1) for part in parts], dim=-1)


plugin = Eager
