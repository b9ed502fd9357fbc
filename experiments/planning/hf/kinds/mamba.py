"""Mamba and Mamba-2, alone or beside attention: some layers keep keys and values, others a state."""

from experiments.planning.hf.build import NOTHING, attention
from experiments.planning.hf.fields import LAYERS, MOST_LAYERS, Fields, Unreadable
from experiments.planning.hf.kinds import states
from experiments.planning.hf.kinds.mixed import (
    ATTENTION,
    BOTH,
    LETTERS,
    STATE,
    grouped_part,
    listed,
    mix,
)
from experiments.planning.hf.kinds.sizes import HIDDEN, hidden_size, kv_heads, layer_count, query_heads
from experiments.planning.model_cache import LayerCache


def jamba(f: Fields) -> list[LayerCache]:
    """Jamba: Mamba, with attention where i mod attn_layer_period is attn_layer_offset."""
    count = layer_count(f)
    kinds = listed(f, count, "layers_block_type", "layer_types")
    if kinds is None:
        period = f.count("attn_layer_period")
        offset = f.index("attn_layer_offset", 0) if f.has("attn_layer_offset") else f.count("attn_layer_offset")
        kinds = [ATTENTION if i % period == offset else STATE for i in range(count)]
    return mix(kinds, grouped_part(f, own_kv=True), states.mamba(f))


def bamba(f: Fields) -> list[LayerCache]:
    """Bamba: Mamba-2, with attention in the layers of attn_layer_indices."""
    count = layer_count(f)
    kinds = listed(f, count, "layers_block_type", "layer_types")
    if kinds is None:
        attending = f.numbered("attn_layer_indices", count)
        if attending is None:
            f.pattern("attn_layer_indices", "no layer attends")
            attending = set()
        kinds = [ATTENTION if i in attending else STATE for i in range(count)]
    return mix(kinds, grouped_part(f, own_kv=True), _mamba2(f))


def granite(f: Fields) -> list[LayerCache]:
    """Granite 4: Mamba-2 and attention by layer_types; without the list, no attention at all."""
    count = layer_count(f)
    kinds = listed(f, count, "layer_types", "layers_block_type")
    if kinds is None:
        f.pattern("layer_types", "no layer attends")
        kinds = [STATE] * count
    other = _mamba2(f) if STATE in kinds else NOTHING
    return mix(kinds, grouped_part(f), other)


def falcon(f: Fields) -> list[LayerCache]:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    return mix([BOTH] * layer_count(f), grouped_part(f, own_kv=True), _mamba2(f))


def _mamba2(f: Fields) -> LayerCache:
    return states.mamba2(f, ("mamba_n_heads",), ("mamba_d_head",), ("mamba_n_groups",))


def nemotron(f: Fields) -> list[LayerCache]:
    """Nemotron-H: hybrid_override_pattern has M for Mamba-2, * for attention, - and E for what caches nothing."""
    pattern = f.word("hybrid_override_pattern")
    count = f.optional_count(*LAYERS)
    if f.has("layers_block_type", "layer_types"):
        name = "layers_block_type" if f.has("layers_block_type") else "layer_types"
        rows = f.rows(name, count) or []
        kinds = listed(f, len(rows), name) or []
    elif pattern is not None:
        kinds = _lettered(f, pattern, count)
    else:
        raise f.missing("hybrid_override_pattern")
    heads = query_heads(f)
    kv, hidden = kv_heads(f, heads, asks=True), hidden_size(f)
    width = f.count("head_dim", "attention_head_dim")
    other = NOTHING
    if STATE in kinds:
        groups = ("n_groups", "mamba_n_groups")
        other = states.mamba2(f, ("mamba_num_heads",), ("mamba_head_dim",), groups, prefix="")
    return mix(kinds, attention(heads, kv, width, width, hidden), other)


def _lettered(f: Fields, pattern: str, count: int | None) -> list[str]:
    if not pattern or len(pattern) > MOST_LAYERS or set(pattern) - set(LETTERS):
        raise f.wrong("hybrid_override_pattern", f"must be letters of {''.join(LETTERS)}", pattern)
    if count is not None and count != len(pattern):
        raise Unreadable(
            f"{f.path}hybrid_override_pattern must have one letter per layer; "
            f"got {len(pattern)} letters, num_hidden_layers={count}"
        )
    return [LETTERS[letter] for letter in pattern]


def zamba(f: Fields) -> list[LayerCache]:
    """Zamba: Mamba in every layer, and in some a shared attention block over twice the width, with a cache per use."""
    count = layer_count(f)
    kinds = listed(f, count, "layers_block_type", "layer_types")
    if kinds is None:
        period, offset = f.count("attn_layer_period"), f.count("attn_layer_offset")
        rest = [BOTH if i % period == offset else STATE for i in range(count - 3)]
        kinds = [STATE, STATE, BOTH, *rest][:count]
    return mix(kinds, _double(f, asks=True), states.mamba(f))


def zamba2(f: Fields) -> list[LayerCache]:
    """Zamba2: the same with Mamba-2."""
    count = layer_count(f)
    kinds = listed(f, count, "layers_block_type", "layer_types")
    if kinds is None:
        attending = f.numbered("hybrid_layer_ids", count)
        if attending is None:
            raise f.missing("layers_block_type")
        kinds = [BOTH if i in attending else STATE for i in range(count)]
    return mix(kinds, _double(f, asks=False), states.mamba2(f, ("n_mamba_heads",), (), ("mamba_ngroups",)))


def _double(f: Fields, asks: bool) -> LayerCache:
    heads = query_heads(f)
    width = f.optional_count("attention_head_dim")
    if width is None:
        hidden = 2 * f.count(*HIDDEN)
        if hidden % heads:
            raise Unreadable(f"{f.path}attention_head_dim is missing and {heads} heads do not divide {hidden} columns")
        width = f.derived("attention_head_dim", hidden // heads, "2 * hidden_size / num_attention_heads")
    return attention(heads, kv_heads(f, heads, asks), width, width, None)


def mamba_only(f: Fields) -> list[LayerCache]:
    """Mamba and Falcon-Mamba: no layer grows."""
    return [states.mamba(f, prefix="")] * layer_count(f)


def mamba2_only(f: Fields) -> list[LayerCache]:
    """Mamba-2."""
    return [states.mamba2(f, ("num_heads",), ("head_dim",), ("n_groups",), prefix="")] * layer_count(f)
