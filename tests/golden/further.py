"""Models beside the table of ``models.py``, each for what its file does otherwise: fields as the file has them.

``elements`` is per token, worked out from the architecture in the line that states it. A windowed model also has the
tokens that its layers hold together at 128k, of ``per_layer`` elements each.
"""

from dataclasses import dataclass
from typing import Any

from tests.golden.models import sizes

LONG = 131_072


@dataclass(frozen=True)
class Further:
    """One file: elements per token, kind, and for windowed layers (full, sliding, window, elements per layer)."""

    config: dict[str, Any]
    elements: int
    kind: str = "GQA"
    windowed: tuple[int, int, int, int] | None = None

    @property
    def elements_at_long(self) -> int:
        """Elements of one sequence of 128k tokens."""
        if self.windowed is None:
            return LONG * self.elements
        full, sliding, window, per_layer = self.windowed
        return (full * LONG + sliding * window) * per_layer


def _mla(model_type: str, layers: int, heads: int, **more: Any) -> dict[str, Any]:
    widths = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    return sizes(model_type, layers, 2048, heads, heads, **widths, **more)


def _gpt(model_type: str, layers: int, hidden: int, heads: int, **more: Any) -> dict[str, Any]:
    return {"model_type": model_type, "n_layer": layers, "n_embd": hidden, "n_head": heads, **more}


def _turns(groups: int, *kinds: str) -> list[str]:
    """``sliding_attention, full_attention, ...``: the kinds in turn."""
    return [f"{kind}_attention" for kind in kinds] * groups


_MAMBA2: dict[str, Any] = {"mamba_d_conv": 4, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1}
_KDA = {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4}
_FULL_KIMI = [4, 8, 12, 16, 20, 24, 27]
_ZAMBA = (6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77)
_SPARSE_M3 = {"sparse_index_dim": 128, "sparse_num_index_heads": 4, "use_sparse_attention": True}
_SPARSE_M3_LAYERS = {"sparse_attention_freq": [0] * 3 + [1] * 57, "sparse_disable_index_value": [0] * 3 + [1] * 57}
_INDEXERS = ["full"] * 3 + (["shared"] * 3 + ["full"]) * 18 + ["shared"] * 3

FURTHER = {
    # heads: flags, old names, none stated
    "SantaCoder": Further(_gpt("gpt2", 24, 2048, 16, attention_head_type="multiquery"), 24 * 2 * 128, "MQA"),
    "StarCoder": Further(_gpt("gpt_bigcode", 40, 6144, 48), 40 * 2 * 128, "MQA"),
    "MPT-7B": Further(
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "attn_config": {"alibi": True}},
        32 * 2 * 4096,
        "MHA",
    ),
    "DBRX": Further(
        {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "attn_config": {"kv_n_heads": 8}},
        40 * 2 * 8 * 128,
    ),
    "ChatGLM3-6B": Further(
        {
            "model_type": "chatglm",
            "num_layers": 28,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
        },
        28 * 2 * 2 * 128,
    ),
    "Falcon-180B": Further(
        sizes("falcon", 80, 14848, 232, num_kv_heads=8, multi_query=True, new_decoder_architecture=True),
        80 * 2 * 8 * 64,
    ),
    "BLOOM": Further({"model_type": "bloom", "n_embed": 14336, "n_layer": 70, "n_head": 112}, 70 * 2 * 14336, "MHA"),
    "Step-3": Further(
        {
            "model_type": "step3_vl",
            "text_config": sizes("step3_text", 61, 7168, 64, num_attention_groups=1, head_dim=256),
        },
        61 * 2 * 256,
        "MQA",
    ),
    "DeciLM-7B": Further(
        sizes("deci", 32, 4096, 32, num_key_value_heads_per_layer=[4] * 16 + [1] * 10 + [2] * 6),
        (16 * 4 + 10 * 1 + 6 * 2) * 2 * 128,
    ),
    # a field of another kind that says there is none of it
    "MiniMax-M2": Further(
        sizes("minimax_m2", 62, 3072, 48, 8, head_dim=128, attn_type_list=[1] * 62), 62 * 2 * 8 * 128
    ),
    "DeepSeek-VL2-Tiny": Further(
        {
            "model_type": "deepseek_vl_v2",
            "language_config": sizes("deepseek_v2", 12, 1280, 10, 10, use_mla=False, kv_lora_rank=None),
        },
        12 * 2 * 1280,
        "MHA",
    ),
    "Qwen2.5-7B": Further(
        sizes("qwen2", 28, 3584, 28, 4, sliding_window=131072, use_sliding_window=False, max_window_layers=28),
        28 * 2 * 4 * 128,
    ),
    "Qwen3-235B": Further(sizes("qwen3_moe", 94, 4096, 64, 4, head_dim=128), 94 * 2 * 4 * 128),
    "Qwen3.6-27B": Further(
        {
            "model_type": "qwen3_5",
            "text_config": sizes(
                *("qwen3_5_text", 64, 5120, 24, 4),
                head_dim=256,
                full_attention_interval=4,
                linear_conv_kernel_dim=4,
                linear_key_head_dim=128,
                linear_value_head_dim=128,
                linear_num_key_heads=16,
                linear_num_value_heads=48,
            ),
        },
        16 * 2 * 4 * 256,
        "GQA+linear",
    ),
    # the text part lies deeper
    "Qwen2.5-Omni-7B": Further(
        {
            "model_type": "qwen2_5_omni",
            "thinker_config": {
                "text_config": sizes("qwen2_5_omni_text", 28, 3584, 28, 4, use_sliding_window=False),
                "audio_config": {"num_hidden_layers": 32},
            },
            "talker_config": {"num_hidden_layers": 24},
        },
        28 * 2 * 4 * 128,
    ),
    "InternVL2.5-8B": Further(
        {"model_type": "internvl_chat", "llm_config": sizes("internlm2", 32, 4096, 32, 8)}, 32 * 2 * 8 * 128
    ),
    # windows
    "Mistral-7B-v0.1": Further(
        sizes("mistral", 32, 4096, 32, 8, sliding_window=4096, max_position_embeddings=32768),
        65_536,
        "GQA+SWA",
        (0, 32, 4096, 2 * 8 * 128),
    ),
    "Command-A": Further(
        sizes("cohere2", 64, 12288, 96, 8, head_dim=128, sliding_window=4096, sliding_window_pattern=4),
        131_072,
        "GQA+SWA",
        (16, 48, 4096, 2 * 8 * 128),
    ),
    "OLMo-3-7B": Further(
        sizes("olmo3", 32, 4096, 32, 32, sliding_window=4096, max_position_embeddings=65536),
        262_144,
        "MHA+SWA",
        (8, 24, 4096, 2 * 4096),
    ),
    "EXAONE-4.0-32B": Further(
        sizes("exaone4", 64, 5120, 40, 8, head_dim=128, sliding_window=4096, sliding_window_pattern="LLLG"),
        131_072,
        "GQA+SWA",
        (16, 48, 4096, 2 * 8 * 128),
    ),
    "Step-3.5-Flash": Further(  # three entries more than layers: what predicts further tokens
        sizes(
            *("step3p5", 45, 4096, 64),
            num_attention_groups=8,
            head_dim=128,
            sliding_window=512,
            num_nextn_predict_layers=3,
            attention_other_setting={"attention_type": "sliding_attention", "num_attention_heads": 96},
            layer_types=_turns(12, "full", "sliding", "sliding", "sliding"),
        ),
        45 * 2 * 8 * 128,
        "GQA+SWA",
        (12, 33, 512, 2 * 8 * 128),
    ),
    # two widths, layers that share
    "Gemma-4-26B": Further(
        {
            "model_type": "gemma4",
            "text_config": sizes(
                *("gemma4_text", 30, 2816, 16, 8),
                head_dim=256,
                global_head_dim=512,
                num_global_key_value_heads=2,
                attention_k_eq_v=True,
                sliding_window=1024,
                layer_types=_turns(5, *["sliding"] * 5, "full"),
            ),
        },
        25 * 2 * 8 * 256 + 5 * 2 * 2 * 512,
        "GQA+SWA",
        (2 * 5, 4 * 25, 1024, 1024),  # in units of a full layer's keys
    ),
    "Gemma-3n-E4B": Further(
        {
            "model_type": "gemma3n",
            "text_config": sizes(
                *("gemma3n_text", 35, 2048, 8, 2),
                head_dim=256,
                sliding_window=512,
                num_kv_shared_layers=15,
                layer_types=_turns(7, *["sliding"] * 4, "full"),
            ),
        },
        20 * 2 * 2 * 256,
        "GQA+SWA+shared",
        (4, 16, 512, 2 * 2 * 256),
    ),
    "Hunyuan-Large": Further(
        sizes("hunyuan", 64, 6400, 80, 8, use_cla=True, cla_share_factor=2, attention_head_dim=128),
        32 * 2 * 8 * 128,
        "GQA+shared",
    ),
    # latents
    "Moonlight-16B": Further(_mla("deepseek_v3", 27, 16, q_lora_rank=None), 27 * 576, "MLA"),
    "LongCat-Flash": Further({**_mla("longcat_flash", 28, 64), "num_layers": 28}, 28 * 2 * 576, "MLA"),
    "GLM-5.2": Further(
        _mla("glm_moe_dsa", 78, 64, index_head_dim=128, head_dim=192, indexer_types=_INDEXERS),
        78 * 576 + 21 * 128,
        "MLA+DSA",
    ),
    "MiniMax-M3": Further(
        sizes(
            *("minimax_m3", 60, 6144, 64, 4),
            head_dim=128,
            sparse_attention_config={**_SPARSE_M3, **_SPARSE_M3_LAYERS},
        ),
        60 * 2 * 4 * 128 + 57 * 128,
        "GQA+index",
    ),
    # states beside attention
    "Kimi-Linear-48B": Further(
        _mla(
            *("kimi_linear", 27, 32),
            linear_attn_config={
                **_KDA,
                "full_attn_layers": _FULL_KIMI,
                "kda_layers": [i for i in range(1, 28) if i not in _FULL_KIMI],
            },
        ),
        7 * 576,
        "MLA+linear",
    ),
    "MiniMax-Text-01": Further(
        sizes("minimax_text_01", 80, 6144, 64, 8, head_dim=128, attn_type_list=([0] * 7 + [1]) * 10),
        10 * 2 * 8 * 128,
        "GQA+linear",
    ),
    "Ring-mini-linear": Further(
        sizes("bailing_moe_linear", 20, 2048, 16, 4, head_dim=128, layer_group_size=5),
        4 * 2 * 4 * 128,
        "GQA+linear",
    ),
    "Granite-4-Tiny": Further(
        sizes(
            *("granitemoehybrid", 40, 1536, 12, 4),
            layer_types=["attention" if i % 10 == 5 else "mamba" for i in range(40)],
            mamba_n_heads=48,
            mamba_d_head=64,
            **_MAMBA2,
        ),
        4 * 2 * 4 * 128,
        "GQA+linear",
    ),
    "Falcon-H1-34B": Further(
        sizes("falcon_h1", 72, 5120, 20, 4, head_dim=128, mamba_n_heads=32, mamba_d_head=128, **_MAMBA2),
        72 * 2 * 4 * 128,
        "GQA+linear",
    ),
    "Zamba2-7B": Further(
        sizes(
            *("zamba2", 81, 3584, 32, 32),
            attention_head_dim=224,
            hybrid_layer_ids=list(_ZAMBA),
            n_mamba_heads=112,
            mamba_ngroups=2,
            mamba_d_conv=4,
            mamba_d_state=64,
            mamba_expand=2,
        ),
        len(_ZAMBA) * 2 * 32 * 224,
        "MHA+linear",
    ),
    "LFM2-1.2B": Further(
        sizes("lfm2", 16, 2048, 32, 8, conv_L_cache=3, full_attn_idxs=[2, 5, 8, 10, 12, 14]),
        6 * 2 * 8 * 64,
        "GQA+linear",
    ),
    "RecurrentGemma-2B": Further(
        sizes("recurrent_gemma", 26, 2560, 10, 1, head_dim=256, attention_window_size=2048, conv1d_width=4),
        8 * 2 * 256,
        "MQA+SWA+linear",
        (0, 8, 2048, 2 * 256),
    ),
    "Mamba-2.8B": Further(
        {**sizes("mamba", 64, 2560, 1), "state_size": 16, "conv_kernel": 4, "expand": 2}, 0, "linear"
    ),
}
