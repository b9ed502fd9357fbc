"""Tiny models of every type that transformers ships, built from their own classes, and what their caches then hold."""

import importlib.util
import inspect
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

PREFILL, STEPS = 11, 3
# Sizes that no two fields share where they can differ, so that a mixed-up field shows
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_size": 48,
    "n_embd": 48,
    "d_model": 48,
    "word_embed_proj_dim": 48,
    "lru_width": 48,
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 6),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), 6),
    "num_key_value_heads": 3,
    "num_kv_heads": 3,
    "head_dim": 20,
    "dim_head": 20,
    "intermediate_size": 32,
    "ffn_dim": 32,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    **dict.fromkeys(("sliding_window", "window_size", "attention_window_size", "attention_chunk_size"), 9),
    "use_sliding_window": True,
    "max_window_layers": 3,
    "kv_lora_rank": 10,
    "q_lora_rank": 14,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "index_head_dim": 8,
    "index_n_heads": 2,
    "index_topk": 16,
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 10,
    "linear_conv_kernel_dim": 4,
    "linear_head_dim": 6,
    "linear_num_heads": 3,
    "short_conv_kernel_size": 4,
    "mamba_n_heads": 4,
    "mamba_d_head": 24,
    "mamba_expand": 2,
    "mamba_d_state": 8,
    "mamba_d_conv": 4,
    "mamba_n_groups": 2,
    "mamba_num_heads": 4,
    "mamba_head_dim": 24,
    "ssm_state_size": 8,
    "n_groups": 2,
    "mamba_ngroups": 2,
    "n_mamba_heads": 4,
    "mamba_d_ssm": 96,
    "state_size": 8,
    "conv_kernel": 4,
    "expand": 2,
    "conv_L_cache": 3,
    "layer_group_size": 3,
}
_ROTARY = {"rope_type": "default", "rope_theta": 1e4}


def _sections(*sections: int) -> dict[str, Any]:
    return {"rope_parameters": {**_ROTARY, "mrope_section": list(sections)}}


_MIXED = ["linear_attention", "hybrid"] * 3
OWN: dict[str, dict[str, Any]] = {
    "codegen": {"rotary_dim": 4},
    "gptj": {"rotary_dim": 4},
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "glm4v_text", "qwen2_5_omni_text"), _sections(2, 1, 1)),
    **dict.fromkeys(("glm_image_text", "glm_ocr_text"), _sections(2, 1, 1)),
    **dict.fromkeys(("cosmos3_edge_text", "hunyuan_vl_text", "paddleocr_vl_text"), _sections(4, 3, 3)),
    "qwen3_omni_moe_text": _sections(4, 3, 3),
    "glm4v_moe_text": _sections(1, 1, 0),
    "hy_v4_vl_text": _sections(1, 1, 0),
    "bamba": {"attn_layer_indices": [1, 3]},
    "chameleon": {"vocabulary_map": {"<image>": 3}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _ROTARY, "sliding_attention": _ROTARY}},
    "deepseek_v4": {"num_key_value_heads": 1, "o_groups": 2, "o_lora_rank": 8, "partial_rotary_factor": 0.4},
    "diffllama": {"num_key_value_heads": 2},
    "falcon": {"num_kv_heads": 6},
    "gemma3n_text": {
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 3,
        "vocab_size_per_layer_input": 64,
        "hidden_size_per_layer_input": 8,
    },
    "gemma4_text": {"global_head_dim": 32, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 64},
    "glm_moe_dsa": {"index_topk_pattern": "FFSFSS"},
    "gpt_neo": {"attention_types": [[["global", "local"], 3]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 3},
    "helium": {"head_dim": 8},
    "jetmoe": {"kv_channels": 20},
    "laguna": {"num_attention_heads_per_layer": [6, 12, 6, 3, 6, 6]},
    "lfm2": {"full_attn_idxs": [1, 4]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 3},
    "longcat_flash": {"num_layers": 3, "head_dim": 4},
    "mamba2": {"num_heads": 4, "head_dim": 24},
    "mistral_large4_text": {
        "no_rope_layers": [1] * 6,
        "kv_source_layers": [0, 0, 2, 2, 4, 4],
        "index_topk_pattern": "FFFSFS",
    },
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"] * 3, "index_n_heads": 3},
    "mllama_text_model": {"cross_attention_layers": [2, 4]},
    "nemotron_h": {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"] * 2},
    "zamba": {"layers_block_type": _MIXED},
    "zamba2": {"layers_block_type": _MIXED, "use_mem_eff_path": False},
}


def config_of(model_type: str) -> Any:
    """A tiny configuration of the type's own class."""
    found = CONFIG_MAPPING[model_type]
    known = found.__dataclass_fields__
    sizes = {name: value for name, value in SIZES.items() if name in known}
    if "kv_lora_rank" in known:
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    return found(**{**sizes, **OWN.get(model_type, {})})


def cached_elements(config: Any) -> tuple[int, int]:
    """Elements of keys, values and the like, and of states, after a prefill and a few decode steps."""
    model, cache = _model(config).eval(), DynamicCache(config=config)
    ids = torch.randint(3, 60, (1, PREFILL), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model(input_ids=ids, cache=cache, use_cache=True)
        for _ in range(STEPS):
            model(input_ids=ids[:, :1], cache=cache, use_cache=True)
    sizes = [_layer(layer) for layer in cache.layers]
    return sum(kept for kept, _ in sizes), sum(state for _, state in sizes)


def _model(config: Any) -> Any:
    """The causal model of a configuration's own module, else its text model."""
    name = type(config).__module__.replace("configuration_", "modeling_")
    if importlib.util.find_spec(name) is None:
        return AutoModelForCausalLM.from_config(config)
    module = importlib.import_module(name)
    found: list[Any] = [
        c
        for _, c in inspect.getmembers(module, inspect.isclass)
        if issubclass(c, PreTrainedModel)
        and c.__module__ == module.__name__
        and getattr(c, "config_class", None) is type(config)
    ]
    for ending in ("ForCausalLM", "TextModel", "Model"):
        for made in found:
            if made.__name__.endswith(ending) and "PreTrained" not in made.__name__:
                return made(config)
    return AutoModelForCausalLM.from_config(config)


def _layer(layer: Any) -> tuple[int, int]:
    kept = state = 0
    shared = _address(getattr(layer, "keys", None))
    for name, value in vars(layer).items():
        if name == "values" and shared is not None and _address(value) == shared:
            continue  # one vector that is key and value
        size = _numel(value)
        if "conv" in name or "recurrent" in name:
            state += size
        elif name in ("keys", "values") or any(part in name for part in ("index", "idx", "compress", "entr")):
            kept += size
    return kept, state


def _address(value: Any) -> int | None:
    return value.data_ptr() if isinstance(value, torch.Tensor) and value.numel() else None


def _numel(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_numel, value)) if isinstance(value, list | tuple) else 0
