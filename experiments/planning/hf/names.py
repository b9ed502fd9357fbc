"""Names in a file that lead to a family: types of models with a text part, and fields that give a kind away."""

from experiments.planning.hf.own import words

# Composite types whose text part may leave out its own model_type, or lie at the top of the file.
TEXT_TYPE = {
    **dict.fromkeys(
        words("""
deepseek_vl deepseek_vl_hybrid idefics3 janus llava llava_next llava_next_video perception_lm smolvlm video_llava
vipllava internvl_llama llava_llama
"""),
        "llama",
    ),
    **dict.fromkeys(
        words("""
fast_vlm got_ocr2 internvl llava_onevision llava_qwen ovis2 video_llama_3 pp_chart2table
"""),
        "qwen2",
    ),
    **dict.fromkeys(["idefics2", "llava_mistral", "mistral3", "pixtral"], "mistral"),
    **dict.fromkeys(["qianfan_ocr", "lighton_ocr", "moss_transcribe_diarize", "Keye", "KeyeVL1_5"], "qwen3"),
    **dict.fromkeys(["blip-2", "instructblip", "instructblipvideo"], "opt"),
    **dict.fromkeys(["aya_vision", "cohere2_vision"], "cohere2"),
    **dict.fromkeys(["glm4v", "glm46v"], "glm4v_text"),
    **dict.fromkeys(["dots_vlm", "kimi_k25", "kimi_vl"], "deepseek_v3"),
    "apertus1p5": "apertus1p5_text",
    "aria": "aria_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "cosmos3_omni": "qwen3_vl_text",
    "deepseek_ocr2": "deepseek_ocr2_text",
    "emu3": "emu3_text_model",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "exaone4_5": "exaone4",
    "exaone4_5_text": "exaone4",
    "fuyu": "persimmon",
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "glm4v_moe": "glm4v_moe_text",
    "glm_image": "glm_image_text",
    "glm_ocr": "glm_ocr_text",
    "granite_docling": "granite_docling_text",
    "hunyuan_vl": "hunyuan_vl_text",
    "hy_v4_vl": "hy_v4_vl_text",
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    "llama4": "llama4_text",
    "minimax_m3_vl": "minimax_m3_vl_text",
    "mistral_large4": "mistral_large4_text",
    "mllama": "mllama_text_model",
    "molmo2": "molmo2_text",
    "muse_glimmer": "muse_glimmer_text",
    "muse_spark": "muse_spark_text",
    "nemotron_h_omni": "nemotron_h",
    "paddleocr_vl": "paddleocr_vl_text",
    "paligemma": "gemma",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "shieldgemma2": "gemma3_text",
    "step3p7": "step3p5",
}

# Fields that mean entries for several tokens, and all that mean another kind of cache than plain keys and values.
COMPRESSED = ("compress_ratios", "compress_rates")
FOREIGN = (
    *COMPRESSED,
    "kv_lora_rank",
    "hybrid_override_pattern",
    "layers_block_type",
    "attn_layer_period",
    "attn_type_list",
    "linear_attn_config",
    "block_configs",
    "hybrid_layer_pattern",
    "num_kv_shared_layers",
    "cross_attention_layers",
    "use_cla",
    "sparse_attention_config",
)
