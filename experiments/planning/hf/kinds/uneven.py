"""Layers that differ in heads or widths: lists per layer, two widths per model, K wider than V, layers that share."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from experiments.planning.hf.build import NOTHING, SHARED, attention
from experiments.planning.hf.fields import Fields, Unreadable
from experiments.planning.hf.kinds.grouped import Grouped, overridden, override
from experiments.planning.hf.kinds.patterns import FULL, SLIDING, Pattern, every, marked, never
from experiments.planning.hf.kinds.sizes import HEAD_DIM, grouping, head_dim, hidden_size, layer_count, query_heads
from experiments.planning.hf.kinds.windows import Kept, keeps
from experiments.planning.hf.own import asks
from experiments.planning.model_cache import LayerCache
from variants.contract.keep import All, Fixed, Keep, Window
from variants.contract.layout import Source


def openelm(f: Fields) -> list[LayerCache]:
    """OpenELM: num_query_heads and num_kv_heads are lists, one entry per layer."""
    count, width, hidden = layer_count(f), f.count(*HEAD_DIM), hidden_size(f)
    heads, kv = (_counts(f, name, count) for name in ("num_query_heads", "num_kv_heads"))
    return [
        attention(h, grouping(f, h, g, "num_kv_heads"), width, width, hidden) for h, g in zip(heads, kv, strict=True)
    ]


def _counts(f: Fields, name: str, layers: int) -> list[int]:
    rows = f.rows(name, layers)
    if rows is None:
        raise f.missing(name)
    return [f.checked(name, value) for value in rows]


def decilm(f: Fields) -> list[LayerCache]:
    """DeciLM and Nemotron-NAS: per layer, a number of key/value heads, a linear stand-in, or no attention at all."""
    count, heads, hidden = layer_count(f), query_heads(f), hidden_size(f)
    width = head_dim(f, heads, asks=False)
    if f.has("num_key_value_heads_per_layer"):
        kv = _counts(f, "num_key_value_heads_per_layer", count)
        name = "num_key_value_heads_per_layer"
        return [attention(heads, grouping(f, heads, g, name), width, width, hidden) for g in kv]
    blocks = f.rows("block_configs", count)
    if blocks is None:
        raise f.missing("block_configs")
    return [_block(f, i, block, heads, width, hidden) for i, block in enumerate(blocks)]


def _block(f: Fields, number: int, block: Any, heads: int, width: int, hidden: int | None) -> LayerCache:
    if not isinstance(block, dict):
        raise f.wrong(f"block_configs[{number}]", "must be an object", block)
    own = Fields(block, f.model_type, f"{f.path}block_configs[{number}].").nested("attention")
    if own.flag("no_op", False) or own.flag("replace_with_linear", False):
        return NOTHING
    if own.has("sparsify"):
        raise own.wrong("sparsify", "is not supported: which tokens are kept is not in the file", own.raw["sparsify"])
    groups = own.count("n_heads_in_group")
    if heads % groups:
        raise Unreadable(
            f"{own.path}n_heads_in_group must divide num_attention_heads; "
            f"got num_attention_heads={heads}, n_heads_in_group={groups}"
        )
    window, sinks = own.optional_count("window_length"), own.index("num_sink_tokens", 0)
    keep: Keep = All() if window is None else Window(window + sinks)
    return attention(heads, heads // groups, width, width, hidden, keep)


def mimo(f: Fields) -> list[LayerCache]:
    """MiMo-V2: V narrower than K, and sliding layers with heads of their own (swa_*), else twice the kv heads."""
    count, hidden = layer_count(f), hidden_size(f)
    full = _sizes(f, "", None)
    heads, kv, d_qk, d_v = full
    sliding = _sizes(f, "swa_", (heads, 2 * kv, d_qk, d_v))
    found = keeps(f, count, marked("hybrid_layer_pattern"), asks=True, marks="hybrid_layer_pattern")
    parts = ((sliding if kept.kind == SLIDING else full, kept) for kept in found)
    return [attention(h, g, d_qk, d_v, hidden, kept.keep, kept.role) for (h, g, d_qk, d_v), kept in parts]


CROSSED = (3, 8, 13, 18, 23, 28, 33, 38)  # Llama 3.2 Vision's, where a file names none

_MIMO = ("num_attention_heads", "num_key_value_heads", "head_dim", "v_head_dim")


def _sizes(f: Fields, prefix: str, otherwise: tuple[int, ...] | None) -> tuple[int, int, int, int]:
    values = []
    for i, name in enumerate(_MIMO):
        given = f.optional_count(prefix + name)
        values.append(given if given is not None else otherwise[i] if otherwise else f.count(name))
    heads, kv, d_qk, d_v = values
    names = prefix + "num_key_value_heads", prefix + "num_attention_heads"
    return heads, grouping(f, heads, kv, *names), d_qk, d_v


def _gemma(pattern: Pattern, asks_sharing: bool) -> Callable[[Fields], list[LayerCache]]:
    """Gemma 3n and 4: full layers may be wider (global_head_dim), and the last layers read what earlier ones keep."""

    def layers(f: Fields) -> list[LayerCache]:
        count, heads, hidden = layer_count(f), query_heads(f), hidden_size(f)
        kv, width = f.count("num_key_value_heads"), f.count("head_dim")
        wide = _global(f, kv, width)
        found = keeps(f, count, pattern, asks=True)
        if not asks_sharing:
            found[-1] = Kept(FULL, All())  # whatever a file says, the last layer of Gemma 4 is full
        own = [
            attention(heads, grouping(f, heads, g), d, d, hidden, kept.keep, kept.role)
            for kept in found
            for g, d in [wide if kept.kind == FULL else (kv, width)]
        ]
        shared = _shared(f, count, asks_sharing)
        return overridden(f, own)[: count - shared] + [SHARED] * shared

    return layers


def _global(f: Fields, kv: int, width: int) -> tuple[int, int]:
    """Heads and width of full layers; num_global_key_value_heads counts only where K and V share a projection."""
    if f.model_type.startswith("gemma3n") or f.has("per_layer_config"):
        return kv, width  # a re-saved Gemma 4 says which layers are wider
    wide = f.optional_count("global_head_dim") or f.derived("global_head_dim", 512, "model_type gemma4")
    few = f.optional_count("num_global_key_value_heads") if f.flag("attention_k_eq_v", False) else None
    return few or kv, wide


def _shared(f: Fields, layers: int, asks: bool) -> int:
    count = f.raw.get("num_kv_shared_layers")
    if count is None:
        count = f.default("num_kv_shared_layers") if asks else 0
    shared = f.index("num_kv_shared_layers", count or 0)
    if shared > layers:
        raise f.wrong("num_kv_shared_layers", f"must be at most num_hidden_layers={layers}", shared)
    return shared


GEMMA3N = _gemma(every(5), asks_sharing=True)
GEMMA4 = _gemma(every(6, last_full=True), asks_sharing=False)


def hunyuan(f: Fields) -> list[LayerCache]:
    """Hunyuan-Large: with use_cla, one layer in cla_share_factor keeps keys and values for its group."""
    own = Grouped().layers(f)
    if not f.flag("use_cla", False):
        return own
    factor = f.count("cla_share_factor")
    return [layer if i % factor == 0 else SHARED for i, layer in enumerate(own)]


def crossing(f: Fields) -> list[LayerCache]:
    """Llama 3.2 Vision: the layers named in cross_attention_layers keep image positions only."""
    own = Grouped(asks=frozenset({"num_key_value_heads"})).layers(f)
    crossed = f.numbered("cross_attention_layers", len(own))
    if crossed is None:
        f.pattern("cross_attention_layers", f"layers {', '.join(map(str, CROSSED))}")
        crossed = {i for i in CROSSED if i < len(own)}
    first = own[0]
    kv, width = first.streams[0].heads, first.streams[0].width
    per_position = attention(first.num_q_heads or kv, kv, width, width, hidden_size(f), Fixed(1), "cross", Source.IMAGE)
    return [per_position if i in crossed else layer for i, layer in enumerate(own)]


def laguna(f: Fields) -> list[LayerCache]:
    """Query heads per layer (num_attention_heads_per_layer); key/value heads are the same everywhere."""
    own = Grouped(never, frozenset({"num_key_value_heads", "head_dim", "sliding_window"})).layers(f)
    rows = f.rows("num_attention_heads_per_layer", len(own))
    if rows is None:
        return own
    heads = [f.checked("num_attention_heads_per_layer", h) for h in rows]
    return [replace(layer, num_q_heads=h, weights=None) for layer, h in zip(own, heads, strict=True)]


def step(f: Fields) -> list[LayerCache]:
    """Step-3.5: attention_other_setting holds the sizes of sliding layers where they differ."""
    own = Grouped(never, asks("step3p5")).layers(f)
    other, hidden = f.nested("attention_other_setting"), hidden_size(f)
    found = keeps(f, len(own), never, asks=True)
    return [
        override(other, layer, hidden) if kept.kind == SLIDING else layer
        for layer, kept in zip(own, found, strict=True)
    ]
