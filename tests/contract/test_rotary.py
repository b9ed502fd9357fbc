"""Rotary frequencies against transformers' own, and what YaRN does to the softmax scale."""

import math
from dataclasses import replace

import pytest

from tests.builders import YARN, tiny_model
from variants.attention.latent.spec import LatentSpec
from variants.contract.rotary import Llama3, Rotary, Yarn, parse_scaling

V3 = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1}
DEEPSEEK_V3 = {**V3, "mscale": 1.0, "mscale_all_dim": 1.0}
DEEPSEEK_V2_LITE = {**V3, "mscale": 0.707, "mscale_all_dim": 0.707}
KIMI_K2_5 = {**DEEPSEEK_V3, "factor": 64.0}
QWEN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA_3_1 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
UNEQUAL = {**V3, "mscale": 0.707, "mscale_all_dim": 1.0}
SHORT = {**QWEN, "factor": 40.0, "original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    ("scaling", "theta", "width"),
    [
        (DEEPSEEK_V3, 1e4, 64),
        (DEEPSEEK_V2_LITE, 1e4, 64),
        (KIMI_K2_5, 5e4, 64),
        (UNEQUAL, 1e4, 64),
        (QWEN, 1e6, 128),
        (SHORT, 1e4, 16),
        ({**QWEN, "original_max_position_embeddings": 262_144}, 1e4, 64),
        (LLAMA_3_1, 5e5, 128),
        ({**LLAMA_3_1, "factor": 32.0}, 5e5, 64),
        ({"rope_type": "linear", "factor": 4.0}, 1e4, 64),
    ],
    ids=[
        "DeepSeek-V3",
        "V2-Lite",
        "Kimi-K2.5",
        "unequal mscales",
        "Qwen2.5",
        "short",
        "long",
        "Llama-3.1",
        "Llama-3.2",
        "linear",
    ],
)
def test_frequencies_and_amplitude_equal_transformers(scaling, theta, width):
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = scaling.get("rope_type", scaling.get("type"))
    parameters = {**scaling, "rope_type": kind, "rope_theta": theta}
    config = LlamaConfig(
        hidden_size=4 * width, num_attention_heads=4, max_position_embeddings=163_840, rope_parameters=parameters
    )
    theirs, amplitude = ROPE_INIT_FUNCTIONS[kind](config, "cpu")
    ours = Rotary("half", width, theta, parse_scaling(scaling))
    assert ours.frequencies() == pytest.approx(theirs.tolist(), rel=2e-6)
    assert ours.amplitude == pytest.approx(amplitude, rel=1e-12)
    plain = replace(ours, scaling=None).frequencies()
    assert 1.2 < max(p / f for p, f in zip(plain, ours.frequencies(), strict=True)) <= scaling["factor"] * (1 + 1e-12)


def test_plain_frequencies():
    assert Rotary("half", 4, 10_000.0).frequencies() == pytest.approx([1.0, 0.01])
    assert Rotary("none", 0).frequencies() == []


def test_a_frequency_vector_overrides():
    rotary = Rotary("half", 4, inv_freq=(0.5, 0.25), scaling=YARN)
    assert rotary.frequencies() == [0.5, 0.25]


@pytest.mark.parametrize(
    ("scaling", "scale"),
    [(DEEPSEEK_V3, 0.13523378), (DEEPSEEK_V2_LITE, 0.11472139), (KIMI_K2_5, 0.14467963), (None, 0.07216878)],
    ids=["DeepSeek-V3", "V2-Lite", "Kimi-K2.5", "no yarn"],
)
def test_b04_softmax_scale_of_mla(scaling, scale):
    model = tiny_model(
        num_key_value_heads=None,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        rope_scaling=scaling,
    )
    spec = LatentSpec.from_model(model)
    assert spec.scale == pytest.approx(scale, abs=1e-8)
    assert spec.geometry().scale == spec.scale
    assert LatentSpec.from_model(model, form="expanded").geometry().scale == spec.scale


def test_b04_probability_of_the_larger_of_two_keys():
    """Raw dot products that differ by 10; every way of getting the factor wrong gives another number."""

    def larger(scale):
        return 1 / (1 + math.exp(-10 * scale))

    rotary = Rotary("interleaved", 64, scaling=parse_scaling(DEEPSEEK_V3))
    assert rotary.softmax_factor == pytest.approx(1.8738542, abs=1e-7)
    assert larger(192**-0.5 * rotary.softmax_factor) == pytest.approx(0.794512, abs=1e-6)
    assert larger(192**-0.5 * rotary.softmax_factor**0.5) == pytest.approx(0.728675, abs=1e-6)


@pytest.mark.parametrize(
    ("scaling", "amplitude", "softmax"),
    [
        (None, 1.0, 1.0),
        (LLAMA_3_1, 1.0, 1.0),
        (QWEN, 0.1 * math.log(4) + 1, 1.0),  # the paper's attention factor rides on cos and sin
        (UNEQUAL, (0.0707 * math.log(40) + 1) / (0.1 * math.log(40) + 1), (0.1 * math.log(40) + 1) ** 2),
        ({**DEEPSEEK_V3, "factor": 1.0}, 1.0, 1.0),
    ],
    ids=["none", "llama3", "paper", "deepseek", "factor 1"],
)
def test_amplitude_and_softmax_factor(scaling, amplitude, softmax):
    rotary = Rotary("half", 64, scaling=parse_scaling(scaling))
    assert rotary.amplitude == pytest.approx(amplitude)
    assert rotary.softmax_factor == pytest.approx(softmax)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"style": "spiral"}, "rope style must be one of none, half, interleaved; got 'spiral'"),
        ({"width": 7}, "rope width must be even and >= 0; got 7"),
        ({"width": -2}, "rope width must be even and >= 0; got -2"),
        ({"inv_freq": (1.0,)}, "inv_freq must have width/2 = 4 entries; got 1"),
        ({"theta": 1.0}, "rope_theta must be > 1; got 1.0"),
    ],
)
def test_impossible_rotations_raise(changes, message):
    with pytest.raises(ValueError, match=message):
        Rotary(**{"style": "half", "width": 8, **changes})


@pytest.mark.parametrize(
    ("head_dim", "fraction", "width"), [(64, 0.25, 16), (80, 0.4, 32), (64, 1.0, 64), (10, 0.5, 4), (64, 0.0, 0)]
)
def test_rotary_fraction(head_dim, fraction, width):
    assert Rotary("half", 64).over(head_dim, fraction).width == width


def test_scaling_mappings():
    assert parse_scaling(DEEPSEEK_V3) == Yarn(40, 4096, 32, 1, 1.0, 1.0)
    assert parse_scaling({**LLAMA_3_1, "type": "llama3"}) == Llama3(8.0, 1.0, 4.0, 8192)
    assert parse_scaling({"rope_type": "default"}) is None
    assert parse_scaling(None) is parse_scaling({}) is None
    without = Rotary("half", 8, scaling=parse_scaling({**V3, "mscale": 0, "mscale_all_dim": 0}))
    assert (without.amplitude, without.softmax_factor) == (0.1 * math.log(40) + 1, 1.0)
    given = dict(DEEPSEEK_V3)
    parse_scaling(given)
    assert given == DEEPSEEK_V3  # a config is never changed


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"type": "dynamic", "factor": 2.0}, "type must be one of default, yarn, llama3, linear; got 'dynamic'"),
        ({"factor": 2.0}, "type must be one of default, yarn, llama3, linear; got None"),
        ({"type": "yarn", "factor": 40}, "of type yarn needs original_max_position_embeddings; got factor"),
        ("yarn", "must be a mapping with a type, or null; got 'yarn'"),
        (
            {"type": "yarn", "factor": "4", "original_max_position_embeddings": 64},
            r"\.factor must be a number > 0; got '4'",
        ),
        ({**LLAMA_3_1, "factor": 0}, r"\.factor must be a number > 0; got 0"),
        ({**V3, "mscale": -1}, r"\.mscale must be a number > 0; got -1"),
        ({**V3, "beta": 1}, "of type yarn has no field 'beta'; it has beta_fast, "),
    ],
)
def test_unknown_scalings_raise(raw, message):
    with pytest.raises(ValueError, match=f"^rope_scaling ?{message}"):
        parse_scaling(raw)
