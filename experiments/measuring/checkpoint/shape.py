"""The attention layers of a transformers config as our ``ModelShape``: sizes and the rotary embedding."""

from collections.abc import Mapping
from typing import Any

from variants.contract.model import ModelShape

WITHOUT_ROPE = ("gpt2", "gpt_bigcode")  # learned positions, added to the embeddings
SIZES = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
IMPLIED = {"truncate": True, "attention_factor": None}  # what they mean where they are left out, in yarn


def shape_of(config: Any, name: str, source: str) -> ModelShape:
    """The shape; ValueError names the field that our layers cannot follow."""
    latent: dict[str, Any] = {field: getattr(config, field, None) for field in SIZES}
    if getattr(config, "alibi", False):
        raise ValueError("rope type alibi is not supported: our layers have no bias by distance")
    return ModelShape(
        name=name,
        source=source,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=kv_heads(config),
        head_dim=None if latent["kv_lora_rank"] else getattr(config, "head_dim", None),
        attention_bias=_has_bias(config),
        qk_norm=config.model_type == "qwen3",
        rms_norm_eps=float(getattr(config, "rms_norm_eps", 1e-6)),
        **rotary_fields(config),
        **latent,
    )


def kv_heads(config: Any) -> int:
    """Key/value heads, under the name and by the rule of the config's type."""
    heads = int(config.num_attention_heads)
    if config.model_type == "falcon":
        return int(config.num_kv_heads) if config.new_decoder_architecture else 1 if config.multi_query else heads
    return int(getattr(config, "num_key_value_heads", None) or heads)


def rotary_fields(config: Any) -> dict[str, Any]:
    """``rope_style``, ``rope_theta``, ``rope_scaling`` and ``partial_rotary_factor`` of a ``ModelShape``."""
    if config.model_type in WITHOUT_ROPE:
        return {"rope_style": "none"}
    given = getattr(config, "rope_parameters", None)
    if not isinstance(given, Mapping) or not isinstance(given.get("rope_theta"), int | float):
        raise ValueError(f"rope_parameters must be one mapping with rope_theta for all layers; got {given!r}")
    part = float(given.get("partial_rotary_factor") or 1.0)
    if part != 1 and config.model_type != "gpt_neox":
        raise ValueError(f"partial_rotary_factor must be 1 for model_type {config.model_type!r}; got {part}")
    interleaved = config.model_type == "deepseek_v2" or getattr(config, "rope_interleave", False)
    apart = ("rope_theta", "partial_rotary_factor")
    scaling = {
        field: value for field, value in given.items() if field not in apart and IMPLIED.get(field, ...) != value
    }
    return {
        "rope_style": "interleaved" if interleaved else "half",
        "rope_theta": float(given["rope_theta"]),
        "rope_scaling": None if scaling.get("rope_type") == "default" else scaling,
        "partial_rotary_factor": part,
    }


def _has_bias(config: Any) -> bool:
    """Whether queries, keys and values have a bias."""
    if config.model_type in ("gpt2", "gpt_bigcode", "qwen2"):
        return True
    return bool(getattr(config, "bias" if config.model_type == "falcon" else "attention_bias", False))
