"""The same weights in Hugging Face transformers' own layers: float32, prefill of 24 tokens and 8 decode steps."""

import inspect
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from experiments.benching.twins import our_state
from tests.builders import BACKENDS, allocate, grouped, in_form, latent, normal, positions
from variants.attention.latent.spec import FORMS
from variants.contract.dtype import Dtype
from variants.contract.rotary import Llama3, Rotary, Yarn
from variants.decode import Decoder

PROMPT, TOKENS = 24, 32
TOLERANCE = 5e-6  # max abs(ours - theirs) over max abs(theirs), float32; seen here: at most 9e-7
YARN = {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
MODELS = ("llama", "llama biased", "llama3 scaling", "llama partial head", "qwen2", "qwen3", "gpt_bigcode")
LATENT_MODELS = ("deepseek_v2", "deepseek_v2 lite", "deepseek_v3", "deepseek_v3 no q_lora", "deepseek_v3 no yarn")


@dataclass(frozen=True)
class Pair:
    """A layer of theirs with its rotary embedding, ours with the same weights, and an input."""

    theirs: Any
    rotary: Any
    config: Any
    ours: Any
    x: torch.Tensor


@pytest.fixture(scope="module")
def transformers():
    """Imported once, when a test of this module runs."""
    return pytest.importorskip("transformers", reason="transformers is a test-only extra")


def sizes(**changes):
    return {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "attn_implementation": "eager",
        "max_position_embeddings": 4096,
        **changes,
    }


def llama_pair(name):
    from transformers.models.llama import modeling_llama as m

    biased = name == "llama biased"
    rope = {"rope_theta": 10_000.0, "rope_type": "default"}
    rotary = Rotary("half", 16)
    if name == "llama3 scaling":
        rope = {"rope_theta": 500_000.0, "rope_type": "llama3", **LLAMA3}
        rotary = Rotary("half", 16, 500_000.0, Llama3(8.0, 1.0, 4.0, 16))
    wide = {"head_dim": 24} if name == "llama partial head" else {}  # 8 * 24 is not the hidden size
    if wide:
        rotary = Rotary("half", 24)
    config = m.LlamaConfig(**sizes(attention_bias=biased, rope_parameters=rope, **wide))
    spec = grouped(8, 2, rotary.width, hidden=64, rotary=rotary, qkv_bias=biased, output_bias=biased)
    return pair(m.LlamaAttention(config, 0), m.LlamaRotaryEmbedding(config), config, spec)


def qwen_pair(name):
    if name == "qwen2":
        from transformers.models.qwen2 import modeling_qwen2 as m

        config = m.Qwen2Config(**sizes(rope_parameters={"rope_theta": 1e6, "rope_type": "default"}))
        spec = grouped(8, 2, 16, hidden=64, rotary=Rotary("half", 16, 1e6), qkv_bias=True)
        return pair(m.Qwen2Attention(config, 0), m.Qwen2RotaryEmbedding(config), config, spec)
    from transformers.models.qwen3 import modeling_qwen3 as m3

    config = m3.Qwen3Config(**sizes(rms_norm_eps=1e-3, rope_parameters={"rope_theta": 1e6, "rope_type": "default"}))
    spec = grouped(8, 2, 16, hidden=64, rotary=Rotary("half", 16, 1e6), qk_norm=True, norm_eps=1e-3)
    return pair(m3.Qwen3Attention(config, 0), m3.Qwen3RotaryEmbedding(config), config, spec)


def bigcode_pair(name):
    from transformers.models.gpt_bigcode import modeling_gpt_bigcode as m

    config = m.GPTBigCodeConfig(n_embd=64, n_head=8, multi_query=True, attn_implementation="eager", attn_pdrop=0.0)
    spec = grouped(8, 1, 8, hidden=64, rotary=Rotary("none", 0), qkv_bias=True, output_bias=True)
    return pair(m.GPTBigCodeAttention(config, layer_idx=0), None, config, spec)


def deepseek_pair(name):
    """DeepSeek's widths divided by 8: latent 64, nope 16, rope 8; v 12 so that it is nobody else's width."""
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    q_lora_rank = None if name in ("deepseek_v2 lite", "deepseek_v3 no q_lora") else 24
    mscale = 0.707 if "v2" in name else 1.0
    yarn = {**YARN, "mscale": mscale, "mscale_all_dim": mscale}
    scaling: Yarn | None = Yarn(40.0, 64, 32.0, 1.0, mscale, mscale)
    if name == "deepseek_v3 no yarn":
        yarn, scaling = {"rope_type": "default"}, None
    shape = sizes(
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=q_lora_rank,
        kv_lora_rank=64,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=12,
        rope_parameters={"rope_theta": 10_000.0, **yarn},
    )
    del shape["head_dim"]
    spec = latent(
        4, 64, 16, 8, 12, hidden=64, q_lora_rank=q_lora_rank, rotary=Rotary("interleaved", 8, scaling=scaling)
    )
    if "v2" in name:
        config = v2.DeepseekV2Config(**shape)
        return pair(v2.DeepseekV2Attention(config, 0), v2.DeepseekV2RotaryEmbedding(config), config, spec)
    config = v3.DeepseekV3Config(**shape)
    return pair(v3.DeepseekV3Attention(config, 0), v3.DeepseekV3RotaryEmbedding(config), config, spec)


def pair(theirs, rotary, config, spec):
    """Ours loads all of their weights."""
    ours = spec.build()
    ours.load_state_dict(our_state(randomise(theirs)), strict=True)
    x = normal(2, TOKENS, config.hidden_size, dtype=torch.float32)
    return Pair(theirs, rotary, config, ours.requires_grad_(False), x)


def randomise(module):
    for index, p in enumerate(module.requires_grad_(False).eval().parameters()):
        spread = 1.5 * p.shape[-1] ** -0.5 if p.ndim == 2 else 0.3
        p.copy_(spread * normal(*p.shape, seed=index) + (0.0 if p.ndim == 2 else 1.0))
    return module


def their_outputs(given):
    """Their prefill and decode steps over their own DynamicCache, [B, T, D]."""
    from transformers import DynamicCache

    cache = DynamicCache()
    steps = [(0, PROMPT), *((t, t + 1) for t in range(PROMPT, TOKENS))]
    return torch.cat([their_step(given, cache, start, stop) for start, stop in steps], dim=1)


def their_step(given, cache, start, stop):
    x = given.x[:, start:stop]
    names = inspect.signature(given.theirs.forward).parameters
    cache_name = next(n for n in ("cache", "past_key_values", "layer_past") if n in names)
    future = torch.arange(stop) > torch.arange(start, stop)[:, None]
    mask = torch.zeros(1, 1, stop - start, stop).masked_fill(future, torch.finfo(torch.float32).min)
    extra = {cache_name: cache, "attention_mask": mask}
    if given.rotary is not None:
        extra["position_embeddings"] = given.rotary(x, positions(2, stop - start, start))
    return given.theirs(x, **extra)[0]


def our_outputs(given, backend, form):
    """Our prefill and decode steps over a contiguous cache, and the full-sequence reference."""
    ours = given.ours.as_form(in_form(given.ours.spec, form)) if form else given.ours
    decoder = Decoder(ours, allocate(ours.spec.layout(Dtype.F32), 2, TOKENS), BACKENDS[backend])
    prefilled = decoder.prefill(given.x[:, :PROMPT])
    decoded = [decoder.decode(given.x[:, t : t + 1]) for t in range(PROMPT, TOKENS)]
    return torch.cat([prefilled, *decoded], dim=1), ours.reference(given.x)


def compare(given, backend, form=None):
    theirs = their_outputs(given)
    for ours in our_outputs(given, backend, form):
        assert float((ours - theirs).abs().max() / theirs.abs().max()) < TOLERANCE


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_grouped_equals_transformers(transformers, name, backend):
    make = bigcode_pair if name == "gpt_bigcode" else llama_pair if name.startswith("llama") else qwen_pair
    compare(make(name), backend)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LATENT_MODELS)
def test_latent_equals_transformers(transformers, name, form, backend):
    compare(deepseek_pair(name), backend, form)
