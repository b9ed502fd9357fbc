"""Linear attention, delta rules, gated recurrences and short convolutions beside attention."""

from experiments.planning.hf.build import NOTHING, linear, state
from experiments.planning.hf.fields import Fields, Unreadable
from experiments.planning.hf.kinds import states
from experiments.planning.hf.kinds.latent import block
from experiments.planning.hf.kinds.mixed import (
    ATTENTION,
    STATE,
    WINDOWED,
    every,
    grouped_part,
    listed,
    mix,
)
from experiments.planning.hf.kinds.sizes import HIDDEN, layer_count, query_heads
from experiments.planning.hf.kinds.windows import WINDOW
from experiments.planning.model_cache import LayerCache


def qwen(f: Fields) -> list[LayerCache]:
    """Qwen3-Next and Qwen3.5: Gated DeltaNet, every fourth layer attention."""
    count = layer_count(f)
    kinds = listed(f, count, "layer_types") or every(f, count, "full_attention_interval", 4)
    return mix(kinds, grouped_part(f, own_kv=True, own_width=True), states.delta_net(f))


def olmo(f: Fields) -> list[LayerCache]:
    """OLMo Hybrid: Gated DeltaNet whose sizes follow from the model's where the file has none."""
    count, heads = layer_count(f), query_heads(f)
    kinds = listed(f, count, "layer_types") or every(f, count, "full_attention_interval", 4)
    if ATTENTION not in kinds:
        kinds[-1] = ATTENTION
    k_heads = f.optional_count("linear_num_key_heads") or heads
    v_heads = f.optional_count("linear_num_value_heads") or heads
    d_k = f.optional_count("linear_key_head_dim") or f.derived(
        "linear_key_head_dim",
        max(1, 3 * f.count(*HIDDEN) // (4 * k_heads)),
        "0.75 * hidden_size / linear_num_key_heads",
    )
    d_v = f.optional_count("linear_value_head_dim") or f.derived("linear_value_head_dim", 2 * d_k, "2 * key's")
    return mix(kinds, grouped_part(f), states.delta(f, k_heads, v_heads, d_k, d_v))


def lara(f: Fields) -> list[LayerCache]:
    """Lara-Mini: Gated DeltaNet, windows and full attention in a pattern of five."""
    count = layer_count(f)
    pattern = (STATE, WINDOWED, STATE, ATTENTION, WINDOWED)
    kinds = listed(f, count, "layer_types", slides=True)
    if kinds is None:
        f.pattern("layer_types", "five kinds in turn")
        kinds = [pattern[i % len(pattern)] for i in range(count)]
    window = f.count(*WINDOW) if WINDOWED in kinds else None
    return mix(kinds, grouped_part(f, own_kv=True, own_width=True), states.delta_net(f), window)


def lfm2(f: Fields) -> list[LayerCache]:
    """LFM2: short convolutions, attention where layer_types or full_attn_idxs say so."""
    count = layer_count(f)
    kinds = listed(f, count, "layer_types", slides=True)
    if kinds is None:
        attending = f.numbered("full_attn_idxs", count)
        if attending is None:
            f.pattern("layer_types", "every layer attends")
        kinds = [ATTENTION if attending is None or i in attending else STATE for i in range(count)]
    other = states.short_conv(f) if STATE in kinds else NOTHING
    window = f.count(*WINDOW) if WINDOWED in kinds else None
    return mix(kinds, grouped_part(f, own_kv=True, own_width=f.model_type == "lfm3"), other, window)


def griffin(f: Fields) -> list[LayerCache]:
    """RecurrentGemma: RG-LRU, and attention within a window, as block_types repeats."""
    count = layer_count(f)
    rows = f.rows("block_types", None)
    if not rows:
        f.pattern("block_types", "two recurrent layers, then one that attends")
        rows = ["recurrent", "recurrent", "attention"]
    if any(row not in ("recurrent", "attention") for row in rows):
        raise f.wrong("block_types", "must hold recurrent and attention", rows)
    kinds = [WINDOWED if rows[i % len(rows)] == "attention" else STATE for i in range(count)]
    window = f.count("attention_window_size", "sliding_window")
    return mix(kinds, grouped_part(f), states.recurrent_unit(f), window)


def minimax(f: Fields) -> list[LayerCache]:
    """MiniMax-01: lightning attention, and softmax attention where attn_type_list has 1 or layer_types says so."""
    count = layer_count(f)
    kinds, marks = listed(f, count, "layer_types"), f.marks("attn_type_list", count, "0 (linear) and 1 (softmax)")
    if kinds is None and marks is not None:
        kinds = [ATTENTION if mark else STATE for mark in marks]
    if kinds is None and f.class_name is None:
        raise f.missing("attn_type_list")
    if kinds is None:
        f.pattern("layer_types", "every second layer attends")
        kinds = [ATTENTION if i % 2 == 0 else STATE for i in range(count)]
    full = grouped_part(f, own_kv=f.class_name is not None)
    return mix(kinds, full, states.lightning(f, full.num_q_heads or 1, full.streams[0].width))


def bailing(f: Fields) -> list[LayerCache]:
    """Ring-linear: lightning attention; attention ends each group, and fills what is left of the last one."""
    count, size = layer_count(f), f.count("layer_group_size")
    whole = count // size * size
    kinds = [ATTENTION if (i + 1) % size == 0 or i >= whole else STATE for i in range(count)]
    full = grouped_part(f)
    return mix(kinds, full, states.lightning(f, full.num_q_heads or 1, full.streams[0].width))


def bailing_latent(f: Fields, form: str = "latent") -> list[LayerCache]:
    """Bailing hybrid: Kimi Delta Attention, and MLA at the end of each group."""
    count = layer_count(f)
    kinds = listed(f, count, "layer_types") or every(f, count, "layer_group_size", 6)
    # a re-saved file has the state's own width beside a head_dim that now means the rotary key's
    width = f.optional_count("linear_head_dim") or f.count("head_dim")
    heads, kernel = f.optional_count("linear_num_heads") or query_heads(f), f.count("short_conv_kernel_size")
    return mix(kinds, block(f, form, None), states.kimi_delta(f, heads, width, kernel))


def kimi(f: Fields, form: str = "latent") -> list[LayerCache]:
    """Kimi-Linear: Kimi Delta Attention, and MLA in the layers (counted from 1) of full_attn_layers."""
    count, inner = layer_count(f), f.nested("linear_attn_config")
    kinds = listed(f, count, "layer_types") or _kimi_kinds(f, inner, count)
    heads = inner.optional_count("num_heads") or f.count("linear_num_heads")
    width = inner.optional_count("head_dim") or f.count("linear_head_dim")
    kernel = inner.optional_count("short_conv_kernel_size") or f.count("linear_conv_kernel_dim")
    return mix(kinds, block(f, form, None), states.kimi_delta(f, heads, width, kernel))


def _kimi_kinds(f: Fields, inner: Fields, count: int) -> list[str]:
    full, delta = (inner.numbered(name, count + 1) for name in ("full_attn_layers", "kda_layers"))
    if full is None or delta is None:
        f.pattern("linear_attn_config", "every fourth layer is MLA")
        return [ATTENTION if i and i % 4 == 0 else STATE for i in range(count)]
    if full & delta or full | delta != set(range(1, count + 1)):
        raise Unreadable(f"{inner.path}full_attn_layers and kda_layers must name each of the layers 1 to {count} once")
    return [ATTENTION if i + 1 in full else STATE for i in range(count)]


def rwkv(f: Fields) -> list[LayerCache]:
    """RWKV-4: two shifted tokens of the model's width, and numerator, denominator and maximum of the attention's."""
    hidden = f.count(*HIDDEN)
    wide = f.optional_count("attention_hidden_size") or hidden
    return [linear(state("shift", hidden, 2), state("wkv", wide, 3))] * layer_count(f)
