"""The call of each version on views of the cache."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from einops import rearrange
from jaxtyping import Shaped
from torch import Tensor

from variants.backend.flash_attn.versions import VERSIONS, compute_major, takes_apart
from variants.contract.geometry import AttentionGeometry, Span
from variants.contract.keep import Window
from variants.protocols import Attended, Plan
from variants.view import CacheView


def plan(
    version: int, num_splits: int, geometry: AttentionGeometry, view: CacheView, max_length: int, queries: int
) -> Plan:
    """All arguments but the query are fixed here."""
    latent, table = takes_apart(version, geometry), view.block_table
    key = _tokens(view, geometry.key[1:] if latent else geometry.key, geometry.num_kv_heads)
    value = _tokens(view, geometry.value, geometry.num_kv_heads)
    if table is None:
        key, value = key[:, :max_length], value[:, :max_length]
    else:
        table = table[:, : -(-max_length // key.shape[1])]
    options: dict[str, Any] = {"softmax_scale": geometry.scale, "causal": queries > 1}
    keep = view.layout.stream(geometry.value[0].stream).keep
    if isinstance(keep, Window):
        options["window_size"] = (keep.size - 1, 0)
    if version == 4:
        splits = VERSIONS[4].latent_major == compute_major(key.device.type) and not latent
        options |= {"seqused_k": view.lengths, "page_table": table, "max_seqlen_k": max_length}
        options |= {"num_splits": num_splits if splits else 1, "return_lse": True}
    else:
        paged = {"block_table" if version == 2 else "page_table": table}
        options |= {"cache_seqlens": view.lengths, **paged, "num_splits": num_splits, "return_softmax_lse": True}
    call: Callable[..., Any] = getattr(import_module(VERSIONS[version].module), VERSIONS[version].function)

    def attend(q: Tensor) -> Attended:
        if latent:
            o, lse, *_ = call(q[..., geometry.d_v :], key, value, qv=q[..., : geometry.d_v], **options)
        else:
            o, lse, *_ = call(q, key, value, **options)
        by_query = version == 4 and latent  # where version 4 orders the log-sum-exp as we do
        return o, lse if by_query else rearrange(lse, "b h q -> b q h")

    return Plan(attend, f"flash_attn_{version}[{num_splits or 'auto'}]", shows=())


def _tokens(view: CacheView, spans: Sequence[Span], kv_heads: int) -> Shaped[Tensor, "P S G W"]:
    """Spans as token-major pages, a view; a row that all kv heads share has stride 0 between them."""
    rows = view.joined(spans)
    assert rows is not None  # refuses() says when it is
    return rearrange(rows.expand(-1, kv_heads, -1, -1), "p g s w -> p s g w")
