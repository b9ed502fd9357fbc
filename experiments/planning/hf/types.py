"""Which family a model_type belongs to.

Read from the models' own code: the modeling and configuration files that transformers 5.24 ships, and for types that
it does not have (``REMOTE``) the code that comes with the model.
"""

from collections.abc import Callable

from experiments.planning.hf.fields import Fields
from experiments.planning.hf.kinds import compressed, grouped, indexed, latent, mamba, patterns, recurrent, uneven
from experiments.planning.hf.kinds.grouped import Grouped
from experiments.planning.hf.kinds.latent import Latent
from experiments.planning.hf.kinds.patterns import Pattern, every
from experiments.planning.hf.own import asks, words
from experiments.planning.model_cache import LayerCache

Reader = Callable[[Fields], list[LayerCache]]
FormReader = Callable[[Fields, str], list[LayerCache]]


# Types of one shape of attention layer, by how their windows lie.
_PLAIN = words("""
apertus apertus1p5_text arcee aria_text biogpt bitnet bloom chameleon codegen cohere cohere_compass_text
cosmos3_edge_text ctrl csm deepseek_ocr2_text diffllama emu3_text_model ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text
exaone flex_olmo gemma glm glm4 glm4_moe glm4v_text glm4v_moe_text glm_image_text glm_ocr_text gpt2 gpt-sw3
gpt_neox gpt_neox_japanese gptj granite granitemoe granitemoeshared granite_docling_text helium hunyuan_v1_dense
hunyuan_vl_text hy_v3 hyperclovax internlm3 iquestcoder jais2 llama mellum minimax_m2 molmo2_text nanochat
nemotron olmo olmo2 olmoe opt paddleocr_vl_text persimmon phi qwen3_vl_text qwen3_vl_moe_text
sarvam_moe seed_oss solar_open stablelm xglm
""")
_PLAIN_REMOTE = words("""
baichuan btlm qwen internlm internlm2 xverse aquila Yi orion minicpm phi-msft mixformer-sequential stablelm_epoch
skywork telechat deepseek phi3small minicpmv minicpmo molmo aria_moe_lm internlmxcomposer2
bailing_moe bailing_moe_v2 grok-1 arctic step3_text jais mimo_audio hf_olmo
""")
_WINDOWED: dict[str, Pattern] = {
    **dict.fromkeys(
        words("""
doge ministral ministral3 mistral mixtral moshi phi3 phi3_v phi4_multimodal phi4mm phimoe qwen3_moe
qwen3_omni_moe_text starcoder2 voxtral_realtime_text
"""),
        patterns.always,
    ),
    **dict.fromkeys(
        words("""
dots1 mimo qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text qwen3
"""),
        patterns.above,
    ),
    "qwen2_moe": patterns.alternate_below,
    "afmoe": every(4, "global_attn_every_n_layers"),
    "beam": every(6, last_full=True),
    "cohere2": every(4),
    "cohere2_moe": patterns.after_prefix,
    "cwm": every(4, offset=0),
    "exaone4": every(4),
    "exaone_moe": every(4),
    "flint": patterns.flint,
    "gemma2": every(2),
    "gemma3_text": every(6),
    "gpt_neo": patterns.neo,
    "gpt_oss": every(2),
    "granite_swa": every(4, offset=0),
    "granitemoe_swa": every(4, offset=0),
    "kolibri1": every(5),
    "llama4_text": patterns.chunked,
    "muse_glimmer_text": patterns.from_the_end,
    "muse_spark_text": patterns.from_the_end,
    "olmo3": every(4),
    "smollm3": patterns.without_rope,
    "vaultgemma": every(2),
}
# Windows are off unless use_sliding_window says true.
_OFF = words("""
mimo qwen2 qwen2_moe qwen2_vl_text qwen2_5_vl_text qwen2_5_omni_text qwen3 qwen3_moe smollm3
""")

_GROUPED: dict[str, Reader] = {
    name: Grouped(_WINDOWED.get(name, patterns.never), asks(name), on=name not in _OFF).layers
    for name in (*_PLAIN, *_PLAIN_REMOTE, *_WINDOWED)
}
_OTHERS: dict[str, Reader] = {
    "bamba": mamba.bamba,
    "bailing_moe_linear": recurrent.bailing,
    "chatglm": grouped.chatglm,
    "dbrx": grouped.with_attn_config,
    "deci": uneven.decilm,
    "decilm": uneven.decilm,
    "deepseek_ref": compressed.layers,
    "deepseek_v4": compressed.layers,
    "falcon": grouped.flagged,
    "falcon_h1": mamba.falcon,
    "falcon_mamba": mamba.mamba_only,
    "gemma3n_text": uneven.GEMMA3N,
    "gemma4_text": uneven.GEMMA4,
    "gemma4_unified_text": uneven.GEMMA4,
    "gpt_bigcode": grouped.flagged,
    "granitemoehybrid": mamba.granite,
    "hunyuan": uneven.hunyuan,
    "hunyuan_v1_moe": uneven.hunyuan,
    "jamba": mamba.jamba,
    "jetmoe": grouped.jetmoe,
    "laguna": uneven.laguna,
    "lara_mini": recurrent.lara,
    "lfm2": recurrent.lfm2,
    "lfm2_moe": recurrent.lfm2,
    "lfm3": recurrent.lfm2,
    "mamba": mamba.mamba_only,
    "mamba2": mamba.mamba2_only,
    "mimo_v2": uneven.mimo,
    "mimo_v2_flash": uneven.mimo,
    "minimax": recurrent.minimax,
    "minimax_text_01": recurrent.minimax,
    "MiniMaxText01": recurrent.minimax,
    "MiniMaxM1": recurrent.minimax,
    "minimax_m1": recurrent.minimax,
    "minimax_m3": indexed.layers,
    "minimax_m3_vl_text": indexed.layers,
    "mllama_text_model": uneven.crossing,
    "mpt": grouped.with_attn_config,
    "nemotron-nas": uneven.decilm,
    "nemotron_h": mamba.nemotron,
    "olmo_hybrid": recurrent.olmo,
    "openelm": uneven.openelm,
    "qwen3_5_moe_text": recurrent.qwen,
    "qwen3_5_text": recurrent.qwen,
    "qwen3_next": recurrent.qwen,
    "recurrent_gemma": recurrent.griffin,
    "RefinedWeb": grouped.refined_web,
    "RefinedWebModel": grouped.flagged,
    "rwkv": recurrent.rwkv,
    "step3p5": uneven.step,
    "zamba": mamba.zamba,
    "zamba2": mamba.zamba2,
}
PLAIN = frozenset(_GROUPED)
READERS: dict[str, Reader] = {**_GROUPED, **_OTHERS}

# Types whose cache comes in two forms: the latent, or keys and values per head.
FORM_READERS: dict[str, FormReader] = {
    **dict.fromkeys(
        words("""
axk1 deepseek_v2 deepseek_v3 glm4_moe_lite kimi_k2 minicpm3 mistral4 sarvam_mla youtu
"""),
        Latent().layers,
    ),
    **dict.fromkeys(["axk2", "deepseek_v32", "glm_moe_dsa"], Latent(index=True).layers),
    **dict.fromkeys(["hy_v4", "hy_v4_vl_text"], Latent(index=True, borrows=4).layers),
    "longcat_flash": Latent(per_layer=2).layers,
    "mistral_large4_text": latent.sourced,
    "bailing_hybrid": recurrent.bailing_latent,
    "kimi_linear": recurrent.kimi,
}

# Types that transformers has no class for; nobody can be asked what an absent field means.
REMOTE = frozenset(
    (
        *_PLAIN_REMOTE,
        *words("""
RefinedWeb RefinedWebModel chatglm deci decilm deepseek_ref hunyuan mimo mimo_v2 nemotron-nas openelm phi3_v phi4mm
bailing_moe_linear minimax_text_01 MiniMaxText01 MiniMaxM1 minimax_m1
"""),
    )
)
# The class whose defaults a type has, if not its own
CLASS_OF = {"kimi_k2": "deepseek_v3", "mimo_v2": "mimo_v2_flash", "minimax_m3": "minimax_m3_vl_text"}
