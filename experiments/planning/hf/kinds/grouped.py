"""Keys and values per head: MHA, GQA and MQA, with or without windows."""

from dataclasses import dataclass

from experiments.planning.hf.build import attention
from experiments.planning.hf.fields import Fields
from experiments.planning.hf.kinds.patterns import Pattern, never
from experiments.planning.hf.kinds.sizes import (
    HEADS,
    KV_HEADS,
    grouping,
    head_dim,
    hidden_size,
    kv_heads,
    layer_count,
    one_head,
    query_heads,
    quotient,
)
from experiments.planning.hf.kinds.windows import keeps
from experiments.planning.model_cache import LayerCache
from variants.contract.keep import Window


@dataclass(frozen=True)
class Grouped:
    """A family whose attention layers are alike but for their windows.

    ``asks``: fields that mean their class's default where absent. ``on``: what an absent use_sliding_window means.
    """

    pattern: Pattern = never
    asks: frozenset[str] = frozenset()
    on: bool = True

    def layers(self, f: Fields) -> list[LayerCache]:
        """One entry per layer of the file."""
        count, heads = layer_count(f), query_heads(f)
        kv = one_head(f) or kv_heads(f, heads, "num_key_value_heads" in self.asks)
        width, hidden = head_dim(f, heads, "head_dim" in self.asks), hidden_size(f)
        found = keeps(f, count, self.pattern, "sliding_window" in self.asks, self.on)
        own = [attention(heads, kv, width, width, hidden, kept.keep, kept.role) for kept in found]
        return overridden(f, own)


def overridden(f: Fields, layers: list[LayerCache]) -> list[LayerCache]:
    """Layers with what per_layer_config (layer number: fields) says otherwise for some of them."""
    inner = f.nested("per_layer_config")
    unknown = [key for key in inner.raw if key not in set(map(str, range(len(layers))))]
    if unknown:
        raise f.wrong("per_layer_config", f"must have layer numbers from 0 to {len(layers) - 1}", unknown[0])
    hidden = hidden_size(f)
    return [override(inner.nested(str(i)), layer, hidden) if inner.raw else layer for i, layer in enumerate(layers)]


def override(own: Fields, layer: LayerCache, hidden: int | None) -> LayerCache:
    """The layer with the sizes that ``own`` states in place of its own; one that keeps nothing stays as it is."""
    if not own.raw or not layer.streams or layer.num_q_heads is None:
        return layer
    key, value = layer.streams
    heads = own.optional_count(HEADS[0]) or layer.num_q_heads
    kv, width = own.optional_count(*KV_HEADS) or key.heads, own.optional_count("head_dim")
    window = own.optional_count("sliding_window") if isinstance(key.keep, Window) else None
    keep = Window(window) if window else key.keep
    sizes = (grouping(own, heads, kv), width or key.width, width or value.width)
    return attention(heads, *sizes, hidden, keep, layer.role)


def flagged(f: Fields) -> list[LayerCache]:
    """Falcon and GPT-BigCode: multi_query means one key/value head, whatever a re-saved file says beside it."""
    count, heads = layer_count(f), query_heads(f)
    new = f.flag("new_decoder_architecture", False)
    if f.flag("multi_query", True) and not new:
        if f.has(*KV_HEADS):
            f.notes.append("multi_query is set: the number of key/value heads in the file is ignored")
        kv = f.derived(KV_HEADS[0], 1, "multi_query")
    else:
        kv = kv_heads(f, heads, asks=False)
    width, hidden = quotient(f, heads), hidden_size(f)
    return [attention(heads, kv, width, width, hidden)] * count


def chatglm(f: Fields) -> list[LayerCache]:
    """ChatGLM: multi_query_attention turns multi_query_group_num on."""
    count, heads = layer_count(f), query_heads(f)
    if f.flag("multi_query_attention", False):
        kv = grouping(f, heads, f.count("multi_query_group_num"), "multi_query_group_num")
    else:
        kv = f.derived(KV_HEADS[0], heads, "no multi_query_attention")
    width, hidden = head_dim(f, heads, asks=False), hidden_size(f)
    return [attention(heads, kv, width, width, hidden)] * count


def with_attn_config(f: Fields) -> list[LayerCache]:
    """MPT and DBRX keep attention's own fields under attn_config."""
    count, heads, inner = layer_count(f), query_heads(f), f.nested("attn_config")
    kind = inner.word("attn_type")
    if kind == "multiquery_attention":
        kv = f.derived(KV_HEADS[0], 1, "attn_type multiquery_attention")
    elif inner.has("kv_n_heads"):
        kv = grouping(f, heads, inner.count("kv_n_heads"), "attn_config.kv_n_heads")
    else:
        f.notes.append("assumed MHA: attn_config has no kv_n_heads")
        kv = f.derived(KV_HEADS[0], heads, "one per query head")
    width, hidden = quotient(f, heads), hidden_size(f)
    return [attention(heads, kv, width, width, hidden)] * count


def jetmoe(f: Fields) -> list[LayerCache]:
    """JetMoE: each of num_experts_per_tok attention experts has num_key_value_heads query heads."""
    count, kv, width = layer_count(f), f.count(KV_HEADS[0]), f.count("kv_channels", "head_dim")
    heads = f.derived(HEADS[0], kv * f.count("num_experts_per_tok"), "num_key_value_heads * num_experts_per_tok")
    return [attention(heads, kv, width, width, None)] * count


def refined_web(f: Fields) -> list[LayerCache]:
    """Falcon-40B before it was called that: grouped heads, n_head_kv of them."""
    count, heads = layer_count(f), query_heads(f)
    kv, width, hidden = (
        grouping(f, heads, f.count("n_head_kv", "num_kv_heads"), f.called("n_head_kv", "num_kv_heads")),
        quotient(f, heads),
        hidden_size(f),
    )
    return [attention(heads, kv, width, width, hidden)] * count
