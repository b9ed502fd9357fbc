"""Hugging Face transformers' own attention layers with the weights and the cached tokens of ours.

What a user has today: each layer with the attention implementation that transformers picks by itself (SDPA), on a
DynamicCache, which is concatenated at every step, and on a StaticCache of exactly the length that is needed.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from experiments.benching.sizes import Sizes
from experiments.measuring.prepare import fill_weights
from variants.attention.grouped.spec import GroupedSpec
from variants.contract.dtype import Dtype
from variants.contract.rotary import Rotary
from variants.modules import adopt
from variants.protocols import Spec
from variants.view import TORCH_DTYPES, CacheView

CACHES = ("dynamic", "static")


@dataclass(frozen=True)
class Twin:
    """A layer of theirs and ours over the same weights. ``rotary`` is None where theirs has no rotary embedding."""

    theirs: Any
    ours: Any
    rotary: Any
    config: Any

    def step(self, kind: str, view: CacheView, x: Tensor) -> "TheirStep":
        """Their decode step of the newest token of a cache of ours, over a copy of all older tokens."""
        tokens = int(view.lengths[0])
        cache = _cache(kind, self.config, tokens)
        cache.update(*(stream[:, :, : tokens - 1].contiguous() for stream in their_streams(view)), 0)
        return TheirStep(self, cache, tokens, x)


class TheirStep:
    """One decode step of theirs that can be run again: ``restore`` takes the appended token away."""

    def __init__(self, twin: Twin, cache: Any, tokens: int, x: Tensor) -> None:
        from transformers.masking_utils import create_causal_mask

        position = torch.full((1, 1), tokens - 1)
        mask = create_causal_mask(twin.config, x, None, cache, position)  # once per model step, not per layer
        names = inspect.signature(twin.theirs.forward).parameters
        given = {next(n for n in ("cache", "past_key_values", "layer_past") if n in names): cache}
        if twin.rotary is not None:
            given["position_embeddings"] = twin.rotary(x, position)
        self._layer = cache.layers[0]
        self._held = (self._layer.keys, self._layer.values)
        self._before = tokens - 1
        self._run: Callable[[], tuple[Tensor, ...]] = lambda: twin.theirs(x, attention_mask=mask, **given)

    def __call__(self) -> Tensor:
        """Append, attend, project: [1, 1, D]."""
        return self._run()[0]

    def restore(self) -> None:
        """Back to the tokens before the step; no copy."""
        self._layer.keys, self._layer.values = self._held
        if hasattr(self._layer, "cumulative_length"):
            self._layer.cumulative_length.fill_(self._before)


def make_twin(variant: str, sizes: Sizes, dtype: Dtype, seed: int) -> Twin:
    """Theirs filled with noise, ours with the very same tensors."""
    with torch.device("meta"):
        theirs, rotary, config, spec = _MAKERS[variant](sizes)
    fill_weights(theirs.eval(), TORCH_DTYPES[dtype], torch.device("cpu"), seed)
    return Twin(theirs, adopt(spec, our_state(theirs)), None if rotary is None else rotary(config), config)


def our_state(theirs: nn.Module) -> Mapping[str, Tensor]:
    """Their weights under our names: the same but for GPT-BigCode, which keeps q, k and v in one matrix."""
    state: Mapping[str, Tensor] = theirs.state_dict()
    if "c_attn.weight" not in state:
        return state
    ours: dict[str, Tensor] = {}
    for part in ("weight", "bias"):
        out = state[f"c_proj.{part}"]
        joint, width = state[f"c_attn.{part}"], len(out)
        head = (len(joint) - width) // 2
        names = ("q_proj", "k_proj", "v_proj")
        ours |= {f"{name}.{part}": rows for name, rows in zip(names, joint.split([width, head, head]), strict=True)}
        ours[f"o_proj.{part}"] = out
    return ours


def their_streams(view: CacheView) -> tuple[Tensor, Tensor]:
    """What their cache calls keys and values, [B, heads, T, W]: our streams in our order.

    Theirs turns DeepSeek's interleaved pairs into halves before it caches them: even columns, then odd ones.
    """
    first, second = (view.stream(stream.name) for stream in view.layout.streams)
    if view.layout.streams[1].name == "rope":
        second = torch.cat([second[..., 0::2], second[..., 1::2]], dim=-1)
    return first, second


def _cache(kind: str, config: Any, tokens: int) -> Any:
    from transformers import DynamicCache, StaticCache

    return DynamicCache() if kind == "dynamic" else StaticCache(config, max_cache_len=tokens)


def _llama(heads: str) -> Callable[[Sizes], tuple[Any, Any, Any, Spec]]:
    def make(sizes: Sizes) -> tuple[Any, Any, Any, Spec]:
        from transformers.models.llama import modeling_llama as m

        spec = sizes.spec(heads)
        assert isinstance(spec, GroupedSpec)
        config = m.LlamaConfig(num_key_value_heads=spec.num_kv_heads, **_common(sizes), head_dim=sizes.head_dim)
        return m.LlamaAttention(config, 0), m.LlamaRotaryEmbedding, config, spec

    return make


def _bigcode(sizes: Sizes) -> tuple[Any, Any, Any, Spec]:
    from transformers.models.gpt_bigcode import modeling_gpt_bigcode as m

    spec = sizes.spec("mqa")
    assert isinstance(spec, GroupedSpec)
    heads = {"n_embd": sizes.hidden_size, "n_head": sizes.num_q_heads, "n_layer": 1, "multi_query": True}
    config = m.GPTBigCodeConfig(**heads, attn_pdrop=0.0, resid_pdrop=0.0, attn_implementation="sdpa")
    own = replace(spec, rotary=Rotary("none", 0), qkv_bias=True, output_bias=True)
    return m.GPTBigCodeAttention(config, layer_idx=0), None, config, own


def _deepseek(sizes: Sizes) -> tuple[Any, Any, Any, Spec]:
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as m

    spec: Any = sizes.spec("mla")
    names = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    widths = {name: getattr(spec, name) for name in names}
    config = m.DeepseekV3Config(num_key_value_heads=sizes.num_q_heads, **_common(sizes), **widths)
    return m.DeepseekV3Attention(config, 0), m.DeepseekV3RotaryEmbedding, config, spec


def _common(sizes: Sizes) -> dict[str, Any]:
    return {
        "hidden_size": sizes.hidden_size,
        "num_attention_heads": sizes.num_q_heads,
        "num_hidden_layers": 1,
        "max_position_embeddings": 2 * max(sizes.steps),
        "rope_parameters": {"rope_theta": sizes.model.rope_theta, "rope_type": "default"},
        "attn_implementation": "sdpa",
    }


_MAKERS = {"mha": _llama("mha"), "gqa8": _llama("gqa8"), "mqa": _bigcode, "mla": _deepseek}
