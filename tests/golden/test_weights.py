"""Parameters of the presets, summed over each model's own shapes, and what its authors say that it has.

A preset holds what attention needs; vocabulary, FFN and expert sizes are those of the same config.json.
"""

from dataclasses import dataclass

import pytest

from experiments.planning.capacity import PARAMETERS
from experiments.planning.hf.presets import names, preset
from experiments.planning.others import other_weight_elements


@dataclass(frozen=True)
class Size:
    """What a preset leaves out, and the count published for the whole model (its source beside it)."""

    vocabulary: int
    inner: int
    published: float
    tied: bool = False
    experts: int = 0
    shared: int = 0
    expert_inner: int = 0
    first_dense: int = 0
    bias_of_router: bool = False


SIZES = {
    "llama2_7b": Size(32_000, 11_008, 6.74e9),  # huggingface.co/meta-llama/Llama-2-7b-hf, its safetensors
    "llama3_8b": Size(128_256, 14_336, 8.03e9),  # huggingface.co/meta-llama/Meta-Llama-3-8B, its safetensors
    "llama3_70b": Size(128_256, 28_672, 70.6e9),  # huggingface.co/meta-llama/Meta-Llama-3-70B, its safetensors
    "llama3_1_405b": Size(128_256, 53_248, 405e9),  # arXiv 2407.21783, table 3
    "qwen2_5_72b": Size(152_064, 29_568, 72.7e9),  # huggingface.co/Qwen/Qwen2.5-72B-Instruct, model card
    "smollm2_135m": Size(49_152, 1_536, 135e6, tied=True),  # huggingface.co/HuggingFaceTB/SmolLM2-135M
    "deepseek_v2_lite": Size(102_400, 10_944, 15.7e9, False, 64, 2, 1_408, 1),  # arXiv 2405.04434, appendix B
    "deepseek_v3": Size(129_280, 18_432, 671e9, False, 256, 1, 2_048, 3, True),  # arXiv 2412.19437, abstract
}


def attention(raw):
    """Projections, their biases and the norms of latents, of one layer."""
    hidden, heads = raw["hidden_size"], raw["num_attention_heads"]
    if not raw.get("kv_lora_rank"):
        width, kv = raw.get("head_dim") or hidden // heads, raw["num_key_value_heads"]
        bias = (heads + 2 * kv) * width if raw.get("attention_bias") else 0
        return 2 * hidden * heads * width + 2 * hidden * kv * width + bias
    rank, rope, q_rank = raw["kv_lora_rank"], raw["qk_rope_head_dim"], raw.get("q_lora_rank")
    per_head = raw["qk_nope_head_dim"] + rope
    query = hidden * heads * per_head if q_rank is None else q_rank * (hidden + 1 + heads * per_head)
    latent = hidden * (rank + rope) + rank + rank * heads * (raw["qk_nope_head_dim"] + raw["v_head_dim"])
    return query + latent + heads * raw["v_head_dim"] * hidden


def parameters(raw, size):
    """All of them: embeddings, attention, FFN or experts with their router, norms, head."""
    hidden, layers = raw["hidden_size"], raw["num_hidden_layers"]
    dense_layers = size.first_dense if size.experts else layers
    dense = dense_layers * 3 * hidden * size.inner
    router = size.experts * (hidden + (1 if size.bias_of_router else 0))
    sparse = (layers - dense_layers) * ((size.experts + size.shared) * 3 * hidden * size.expert_inner + router)
    embeddings = size.vocabulary * hidden * (1 if size.tied else 2)
    return embeddings + layers * (attention(raw) + 2 * hidden) + dense + sparse + hidden


def test_every_preset_is_summed():
    assert set(SIZES) == set(PARAMETERS) == set(names())


@pytest.mark.parametrize("name", SIZES)
def test_parameters_follow_from_the_shapes(name):
    assert PARAMETERS[name] == parameters(preset(name), SIZES[name])


@pytest.mark.parametrize("name", SIZES)
def test_parameters_are_what_is_published(name):
    assert PARAMETERS[name] == pytest.approx(SIZES[name].published, rel=0.005)


@pytest.mark.parametrize("name", [name for name, size in SIZES.items() if not size.experts])
def test_what_stands_beside_the_attention_layers_is_the_rest(name):
    raw = preset(name)
    rest = parameters(raw, SIZES[name]) - raw["num_hidden_layers"] * attention(raw)
    assert other_weight_elements()[raw["name"]] == rest


def test_of_models_with_experts_nobody_knows_what_a_token_reads():
    named = {preset(name)["name"] for name, size in SIZES.items() if size.experts}
    assert not named & set(other_weight_elements())
