"""Keys and values per head, and beside them an indexer's key where a layer picks blocks of tokens (MiniMax-M3)."""

from experiments.planning.hf.build import attention, with_index
from experiments.planning.hf.fields import Fields
from experiments.planning.hf.kinds.sizes import head_dim, hidden_size, kv_heads, layer_count, query_heads
from experiments.planning.model_cache import LayerCache

FULL, SPARSE = "full_attention", "minimax_m3_sparse"


def layers(f: Fields) -> list[LayerCache]:
    """One entry per layer: grouped attention; the indexer's heads share one key."""
    count, heads = layer_count(f), query_heads(f)
    kv, width = kv_heads(f, heads, asks=True), head_dim(f, heads, asks=True)
    own, inner = attention(heads, kv, width, width, hidden_size(f)), f.nested("sparse_attention_config")
    sparse = _sparse(f, inner, count)
    if not any(sparse):
        return [own] * count
    indexed = with_index(own, inner.optional_count("sparse_index_dim") or f.count("index_head_dim"))
    return [indexed if pick else own for pick in sparse]


def _sparse(f: Fields, inner: Fields, layers: int) -> list[bool]:
    kinds = f.rows("layer_types", layers)
    if kinds is not None:
        if any(kind not in (FULL, SPARSE) for kind in kinds):
            raise f.wrong("layer_types", f"must hold {FULL} and {SPARSE}", kinds)
        return [kind == SPARSE for kind in kinds]
    marks = inner.marks("sparse_attention_freq", layers)
    if marks is None or (inner.has("use_sparse_attention") and not inner.flag("use_sparse_attention", True)):
        f.pattern("layer_types", "every layer sees everything, unless sparse_attention_config says otherwise")
        return [False] * layers
    off = inner.marks("sparse_disable_index_value", layers) or [True] * layers
    if any(mark and not without for mark, without in zip(marks, off, strict=True)):
        raise inner.wrong("sparse_disable_index_value", "must be 1 where a layer is sparse", off)
    return marks
