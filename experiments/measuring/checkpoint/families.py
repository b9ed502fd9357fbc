"""Which kinds of models can be read, where their attention layers stand, and what those are in our terms."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from experiments.measuring.checkpoint.weights import as_named, concatenated, fused
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.contract.model import ModelShape
from variants.modules import adopt
from variants.protocols import Attention, Spec

SpecOf = Callable[[Any, ModelShape, int], Spec]
Weights = Callable[[Mapping[str, Tensor], Any], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Family:
    """``layers`` and ``attention``: names of the list of layers in the base model, and of the part that is replaced."""

    spec: SpecOf
    weights: Weights = as_named
    layers: str = "layers"
    attention: str = "self_attn"


def grouped(config: Any, shape: ModelShape, layer: int) -> GroupedSpec:
    """MHA, GQA or MQA of a layer; ``scale`` where GPT-2's flags change it."""
    spec = GroupedSpec.from_model(shape, num_kv_heads=shape.kv_heads, window=_window(config, layer))
    spec = replace(spec, output_bias=shape.attention_bias and config.model_type != "qwen2")
    if not getattr(config, "scale_attn_weights", True):
        spec = replace(spec, scale=1.0)
    if getattr(config, "scale_attn_by_inverse_layer_idx", False):
        spec = replace(spec, scale=spec.scale / (layer + 1))
    return spec


def latent(config: Any, shape: ModelShape, layer: int) -> LatentSpec:
    """MLA, absorbed; its norms have an epsilon of their own."""
    if shape.attention_bias:
        raise ValueError("attention_bias must be false: our latent attention has no biases")
    spec = LatentSpec.from_model(shape)
    return replace(spec, rotary=replace(spec.rotary, style=shape.rope_style), norm_eps=1e-6)


def _window(config: Any, layer: int) -> int | None:
    """Tokens that the layer sees; None: all of them."""
    size: int | None = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    return size if kinds is None or kinds[layer] == "sliding_attention" else None


_NAMED = Family(grouped)
_LATENT = Family(latent)
FAMILIES: Mapping[str, Family] = {
    "llama": _NAMED,
    "mistral": _NAMED,
    "qwen2": _NAMED,
    "qwen3": _NAMED,
    "gpt2": Family(grouped, concatenated, "h", "attn"),
    "gpt_neox": Family(grouped, fused("query_key_value", "dense"), "layers", "attention"),
    "gpt_bigcode": Family(grouped, fused("c_attn", "c_proj"), "h", "attn"),
    "falcon": Family(grouped, fused("query_key_value", "dense"), "h", "self_attention"),
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
}


def layers_of(model: Any) -> list[nn.Module]:
    """The decoder layers of a transformers model."""
    return list(getattr(model.base_model, FAMILIES[model.config.model_type].layers))


def ours(model: Any, specs: list[Spec]) -> tuple[Attention, ...]:
    """Our attention of every layer over the model's own weights: shared where they lie as ours do, else a copy."""
    family = FAMILIES[model.config.model_type]
    pairs = zip(specs, layers_of(model), strict=True)
    return tuple(
        adopt(spec, family.weights(getattr(layer, family.attention).state_dict(), spec)) for spec, layer in pairs
    )
