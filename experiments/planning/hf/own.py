"""Fields that a file may leave out because its class has a number of its own for them; the class is asked which."""


def words(names: str) -> list[str]:
    """Names as they stand in a block of text."""
    return names.split()


# Types whose class has a number of its own where the file has no such field; elsewhere one is derived (MHA, quotient).
_OWN_KV = words("""
beam bitnet chameleon cosmos3_edge_text csm cwm dots1 emu3_text_model ernie4_5 ernie4_5_moe
ernie4_5_vl_moe_text exaone exaone4 exaone_moe flint gemma gemma2 gemma3_text glm glm4 glm4_moe glm4v_text
glm4v_moe_text glm_image_text glm_ocr_text gpt_oss granite_docling_text granite_swa helium hy_v3 internlm3
iquestcoder kolibri1 llama4_text mellum minimax_m2 ministral ministral3 mistral mixtral molmo2_text
muse_glimmer_text muse_spark_text paddleocr_vl_text phi4_multimodal phimoe qwen2 qwen2_5_omni_text qwen2_5_vl_text
qwen2_moe qwen2_vl_text qwen3 qwen3_moe qwen3_omni_moe_text qwen3_vl_moe_text qwen3_vl_text sarvam_moe seed_oss
smollm3 solar_open stablelm starcoder2 step3p5 vaultgemma voxtral_realtime_text
""")
_OWN_WIDTH = words("""
afmoe beam cohere2_moe cosmos3_edge_text cwm ernie4_5 flint gemma gemma2 gemma3_text glm glm4 gpt_oss helium hy_v3
internlm3 iquestcoder kolibri1 llama4_text mellum minimax_m2 ministral3 molmo2_text muse_glimmer_text
muse_spark_text paddleocr_vl_text qwen3 qwen3_vl_text sarvam_moe seed_oss solar_open step3p5 vaultgemma
""")
_OWN_WINDOW = words("""
afmoe beam cohere2 cohere2_moe cohere_compass_text cwm dots1 exaone4 exaone_moe flint gemma2 gemma3_text gpt_neo
gpt_oss granite_swa granitemoe_swa kolibri1 llama4_text mellum ministral mistral moshi muse_glimmer_text
muse_spark_text olmo3 qwen2 qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3 qwen3_moe step3p5
vaultgemma voxtral_realtime_text
""")


def asks(name: str) -> frozenset[str]:
    """The fields that mean their class's own number where a file of type ``name`` has none."""
    owned = {"num_key_value_heads": _OWN_KV, "head_dim": _OWN_WIDTH, "sliding_window": _OWN_WINDOW}
    return frozenset(field for field, types in owned.items() if name in types)
