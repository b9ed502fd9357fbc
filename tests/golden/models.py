"""Cache sizes of real models, written from the facts: the fields that decide them, and bytes in bfloat16.

Fields are those of each model's config.json under the names it uses there; figures follow from them and agree with the
sources named. Windowed layers store min(tokens, window) in ``at``.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """``config`` as a file would have it; elements and bytes per token, long-context marginal, bytes at 8k/32k/128k."""

    config: dict[str, Any]
    elements: int
    per_token: int
    marginal: int
    at: tuple[int, int, int]
    state: int = 0
    kind: str = field(default="GQA", kw_only=True)


def _alike(config: dict[str, Any], elements: int, kind: str, state: int = 0) -> Model:
    """A model whose layers all grow: everything follows from elements per token."""
    size = 2 * elements
    at = (8192 * size, 32768 * size, 131072 * size)
    return Model(config, elements, size, size, at, state, kind=kind)


def sizes(model_type: str, layers: int, hidden: int, heads: int, kv: int | None = None, **more: Any) -> dict[str, Any]:
    """A config with the usual names for its sizes."""
    named = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    groups = {} if kv is None else {"num_key_value_heads": kv}
    return {"model_type": model_type, **named, **groups, **more}


def _latent(model_type: str, layers: int, heads: int, rank: int = 512, rope: int = 64, **more: Any) -> dict[str, Any]:
    width = {"kv_lora_rank": rank, "qk_rope_head_dim": rope}
    return sizes(model_type, layers, 7168, heads, heads, **width, **more)


_HYBRID_V4 = {"head_dim": 512, "sliding_window": 128, "index_head_dim": 128, "num_key_value_heads": 1}
_NEMOTRON = "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-"
_OPENELM = [3] * 4 + [4] * 14 + [5] * 12 + [6] * 6

MODELS = {
    "Llama-2-7B": _alike(sizes("llama", 32, 4096, 32, 32), 262_144, "MHA"),
    "GPT-2": _alike({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12}, 18_432, "MHA"),
    "Phi-2": _alike(
        {"model_type": "phi-msft", "n_layer": 32, "n_embd": 2560, "n_head": 32, "n_head_kv": None}, 163_840, "MHA"
    ),
    "Llama-3.1-8B": _alike(sizes("llama", 32, 4096, 32, 8), 65_536, "GQA"),
    "Llama-3.1-70B": _alike(sizes("llama", 80, 8192, 64, 8), 163_840, "GQA"),
    "Llama-3.1-405B": _alike(sizes("llama", 126, 16384, 128, 8), 258_048, "GQA"),
    "Qwen2-72B": _alike(
        sizes("qwen2", 80, 8192, 64, 8, sliding_window=131072, use_sliding_window=False, max_window_layers=80),
        163_840,
        "GQA",
    ),
    "Qwen3-0.6B": _alike(sizes("qwen3", 28, 1024, 16, 8, head_dim=128), 57_344, "GQA"),
    "Phi-3.5-mini": _alike(
        sizes("phi3", 32, 3072, 32, 32, sliding_window=262144, max_position_embeddings=131072), 196_608, "MHA"
    ),
    "Gemma-2B": _alike(sizes("gemma", 18, 2048, 8, 1, head_dim=256), 9_216, "MQA"),
    "Falcon-7B": _alike(sizes("falcon", 32, 4544, 71, multi_query=True, new_decoder_architecture=False), 4_096, "MQA"),
    "Falcon-40B": _alike(
        sizes("falcon", 60, 8192, 128, num_kv_heads=8, multi_query=True, new_decoder_architecture=True), 61_440, "GQA"
    ),
    "OpenELM-3B": _alike(
        {
            "model_type": "openelm",
            "num_transformer_layers": 36,
            "model_dim": 3072,
            "head_dim": 128,
            "num_kv_heads": _OPENELM,
            "num_query_heads": [4 * g for g in _OPENELM],
        },
        41_984,
        "GQA",
    ),
    "Nemotron-49B": _alike(
        sizes(
            "nemotron-nas",
            80,
            8192,
            64,
            num_key_value_heads=None,
            block_configs=[{"attention": {"n_heads_in_group": 8}}] * 49 + [{"attention": {"no_op": True}}] * 31,
        ),
        100_352,
        "GQA",
    ),
    "Gemma-2-9B": Model(
        sizes("gemma2", 42, 3584, 16, 8, head_dim=256, sliding_window=4096, max_position_embeddings=8192),
        172_032,
        344_064,
        172_032,
        (2_113_929_216, 6_341_787_648, 23_253_221_376),
        kind="GQA+SWA",
    ),
    "Gemma-3-27B": Model(
        {
            "model_type": "gemma3",
            "text_config": sizes("gemma3_text", 62, 5376, 32, 16, head_dim=128, sliding_window=1024),
            "vision_config": {"num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16},
        },
        253_952,
        507_904,
        81_920,
        (1_107_296_256, 3_120_562_176, 11_173_625_856),
        kind="GQA+SWA",
    ),
    "gpt-oss-20b": Model(
        sizes(
            "gpt_oss",
            24,
            2880,
            64,
            8,
            head_dim=64,
            sliding_window=128,
            layer_types=["sliding_attention", "full_attention"] * 12,
        ),
        24_576,
        49_152,
        24_576,
        (204_472_320, 808_452_096, 3_224_371_200),
        kind="GQA+SWA",
    ),
    "Llama-4-Scout": Model(
        {
            "model_type": "llama4",
            "text_config": sizes("llama4_text", 48, 5120, 40, 8, head_dim=128, attention_chunk_size=8192),
        },
        98_304,
        196_608,
        49_152,
        (1_610_612_736, 2_818_572_288, 7_650_410_496),
        kind="GQA+chunked",
    ),
    "MiMo-V2-Flash": Model(
        sizes(
            "mimo_v2_flash",
            48,
            4096,
            64,
            4,
            head_dim=192,
            v_head_dim=128,
            swa_num_key_value_heads=8,
            sliding_window=128,
            hybrid_layer_pattern=[0] + ([1] * 4 + [0]) + ([1] * 5 + [0]) * 7,
        ),
        111_360,
        222_720,
        23_040,
        (214_302_720, 780_533_760, 3_045_457_920),
        kind="GQA+SWA",
    ),
    "DeepSeek-V2-Lite": _alike(_latent("deepseek_v2", 27, 16), 15_552, "MLA"),
    "DeepSeek-V3": _alike(_latent("deepseek_v3", 61, 128), 35_136, "MLA"),
    "Kimi-K2.5": _alike({"model_type": "kimi_k25", "text_config": _latent("kimi_k2", 61, 64)}, 35_136, "MLA"),
    "MiniCPM3-4B": _alike(
        {**_latent("minicpm3", 62, 40, 256, 32, qk_nope_head_dim=64), "hidden_size": 2560}, 17_856, "MLA"
    ),
    "DeepSeek-V3.2": _alike(_latent("deepseek_v32", 61, 128, index_head_dim=128), 42_944, "MLA+DSA"),
    "GLM-5": _alike(_latent("glm_moe_dsa", 78, 64, index_head_dim=128, head_dim=64), 54_912, "MLA+DSA"),
    "Qwen3-Next-80B": _alike(
        sizes(
            "qwen3_next",
            48,
            2048,
            16,
            2,
            head_dim=256,
            full_attention_interval=4,
            linear_num_key_heads=16,
            linear_num_value_heads=32,
            linear_key_head_dim=128,
            linear_value_head_dim=128,
            linear_conv_kernel_dim=4,
        ),
        12_288,
        "GQA+linear",
        39_518_208,
    ),
    "Jamba-v0.1": _alike(
        sizes(
            "jamba",
            32,
            4096,
            32,
            8,
            attn_layer_period=8,
            attn_layer_offset=4,
            mamba_d_state=16,
            mamba_d_conv=4,
            mamba_expand=2,
        ),
        8_192,
        "GQA+linear",
        8_716_288,
    ),
    "Nemotron-H-56B": _alike(
        sizes(
            "nemotron_h",
            118,
            8192,
            64,
            8,
            attention_head_dim=128,
            hybrid_override_pattern=_NEMOTRON,
            mamba_num_heads=256,
            mamba_head_dim=64,
            n_groups=8,
            ssm_state_size=256,
            conv_kernel=4,
        ),
        20_480,
        "GQA+linear",
        54 * 2 * (3 * (16384 + 2 * 8 * 256) + 256 * 64 * 256),
    ),
    "Llama-3.2-90B-Vision": _alike(
        {
            "model_type": "mllama",
            "text_config": sizes("mllama_text_model", 100, 8192, 64, 8, cross_attention_layers=[*range(3, 100, 5)]),
        },
        163_840,
        "GQA+cross",
    ),
    "DeepSeek-V4-Pro": Model(
        sizes("deepseek_v4", 61, 7168, 128, **_HYBRID_V4, compress_ratios=[128, 128, *([4, 128] * 29), 4, 0]),
        4_924,
        9_848,
        9_848,
        (88_670_208, 330_694_656, 1_298_792_448),
        kind="compressed",
    ),
    "DeepSeek-V4-Flash": Model(
        sizes("deepseek_v4", 43, 4096, 64, **_HYBRID_V4, compress_ratios=[0, 0, *([4, 128] * 20), 4, 0]),
        3_440,
        6_880,
        6_880,
        (61_997_056, 231_079_936, 907_411_456),
        kind="compressed+SWA",
    ),
}
