"""What fits on given devices, against arithmetic done by hand."""

from fractions import Fraction

import pytest

from experiments.planning import four
from experiments.planning.capacity import (
    Devices,
    alternatives,
    batch_beyond_weights,
    capacity,
    longest_context,
    preset_weight_bytes,
)
from experiments.planning.formats import parse_format
from experiments.planning.hf.presets import preset
from experiments.planning.hf.read import read_config
from tests.golden.models import MODELS

BF16 = parse_format("bf16")
GB, GIB = 10**9, 2**30
H100S = Devices(memory=80 * GB, count=8, tp=8, reserve=5 * GB)


def golden(name, **changes):
    return read_config({**MODELS[name].config, **changes}, name)


def test_cache_of_llama3_70b_outweighs_it_from_53_sequences_on():
    model = golden("Llama-3.1-70B")
    assert batch_beyond_weights(model, BF16, 140 * GB, {8192: 1}) == 53
    assert 52 * four.exact(model, BF16, 8192) < 140 * GB < 53 * four.exact(model, BF16, 8192)


def test_replicas_of_a_latent_outweigh_the_weights_sooner():
    model = golden("DeepSeek-V3")
    per_sequence = 8192 * 70_272
    for tp in (1, 8):
        batch = batch_beyond_weights(model, BF16, 671 * GB, {8192: 1}, tp)
        assert (batch - 1) * tp * per_sequence <= 671 * GB < batch * tp * per_sequence
    assert batch_beyond_weights(golden("Llama-3.1-70B"), BF16, 140 * GB, {8192: 1}, 8) == 53


def test_sequences_that_fit_beside_the_weights():
    found = capacity(golden("Llama-3.1-70B"), BF16, H100S, 140 * GB, {8192: 1})
    per_rank = 8192 * 40_960
    assert found.bytes_per_sequence == per_rank
    assert found.sequences == (80 * GB - 5 * GB - 140 * GB // 8) // per_rank == 171
    assert (found.tokens, found.tp_mode) == (171 * 8192, "sharded")


def test_every_group_of_devices_is_a_copy():
    two = Devices(memory=H100S.memory, count=16, tp=8, reserve=H100S.reserve)
    one = capacity(golden("Llama-3.1-70B"), BF16, H100S, 140 * GB, {8192: 1})
    assert capacity(golden("Llama-3.1-70B"), BF16, two, 140 * GB, {8192: 1}).sequences == 2 * one.sequences


def test_lengths_come_in_shares():
    mixed = capacity(golden("Llama-3.1-70B"), BF16, H100S, 140 * GB, {2048: 3, 32768: 1})
    assert mixed.bytes_per_sequence == Fraction(3 * 2048 + 32768, 4) * 40_960
    assert mixed.tokens == mixed.sequences * (3 * 2048 + 32768) // 4


def test_constant_state_counts_in_every_sequence():
    model = golden("Qwen3-Next-80B")
    found = capacity(model, BF16, Devices(80 * GB), 0, {1: 1})
    assert found.bytes_per_sequence == 24_576 + 39_518_208


def test_a_window_makes_the_inverse_bend():
    model = golden("gpt-oss-20b", num_hidden_layers=36, layer_types=["sliding_attention", "full_attention"] * 18)
    assert longest_context(model, BF16, 4_836_556_800) == 131_072
    assert longest_context(model, BF16, 4_836_556_799) == 131_071
    assert longest_context(model, BF16, 73_728 - 1) == 0


def test_a_cache_of_windows_never_fills_a_large_budget():
    config = {"model_type": "mistral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8}
    model = read_config({**config, "num_key_value_heads": 2, "sliding_window": 16}, "windowed")
    assert longest_context(model, BF16, four.exact(model, BF16, 16)) is None
    assert longest_context(model, BF16, four.exact(model, BF16, 16) - 1) == 15


def test_llama3_70b_with_mla_holds_more_at_tp_1_and_less_at_tp_8():
    """The latent is on every rank, so what wins on one device loses on eight."""
    model, contexts = golden("Llama-3.1-70B"), {8192: 1}
    for tp, mla_holds_more in ((1, True), (2, True), (4, False), (8, False)):
        devices, models = Devices(200 * GB, tp, tp), {"as it is": model, **alternatives(model)}
        found = {name: capacity(made, BF16, devices, 100 * GB, contexts) for name, made in models.items()}
        assert (found["MLA 512+64"].sequences > found["as it is"].sequences) is mla_holds_more
        assert found["MLA 512+64"].bytes_per_sequence == 8192 * 80 * 1152
        assert found["as it is"] == found["GQA-8"]


def test_alternatives_keep_windows_and_states():
    model = golden("gpt-oss-20b")
    for name, other in alternatives(model).items():
        assert [layer.streams[0].keep for layer in other.layers] == [layer.streams[0].keep for layer in model.layers], (
            name
        )
    hybrid = golden("Qwen3-Next-80B")
    assert {four.state_bytes(m) for m in alternatives(hybrid).values()} == {39_518_208}
    assert four.rate(alternatives(model)["MQA"], BF16) == 24 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("DeepSeek-V3", "can take the place of keys and values per head only; got MLA$"),
        ("DeepSeek-V4-Pro", "can take the place of keys and values per head only; got compressed$"),
        ("OpenELM-3B", "needs layers of one shape .*; got heads x head_dim 12 x 128, 16 x 128, 20 x 128, 24 x 128$"),
    ],
)
def test_alternatives_need_one_shape_of_heads(name, why):
    with pytest.raises(ValueError, match=f"^other attention {why}"):
        alternatives(golden(name))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Devices(80 * GB, count=6, tp=4), "tp must divide the number of devices; got count=6, tp=4"),
        (lambda: Devices(80 * GB, reserve=80 * GB), "reserve must be from 0 to below memory"),
        (lambda: Devices(0), "memory must be a whole number >= 1"),
        (lambda: Devices(80 * GB).room(140 * GB), "weights must fit beside the reserve; got 140000000000 B"),
        (lambda: capacity(golden("Llama-3.1-8B"), BF16, H100S, GB, {}), "contexts must map tokens to shares > 0"),
        (lambda: capacity(golden("Llama-3.1-8B"), BF16, H100S, GB, {8: 0}), "contexts must map tokens to shares > 0"),
        (lambda: batch_beyond_weights(golden("Llama-3.1-8B"), BF16, GB, {0: 1}), "caches nothing at 0 tokens"),
    ],
)
def test_what_cannot_be_planned_says_why(make, why):
    with pytest.raises(ValueError, match=why):
        make()


def test_presets_bring_their_weights():
    assert preset_weight_bytes("llama3_70b") == 141_107_412_992
    assert (
        batch_beyond_weights(read_config(preset("llama3_70b"), "p"), BF16, preset_weight_bytes("llama3_70b"), {8192: 1})
        == 53
    )


def test_a_million_tokens_of_gib():
    assert longest_context(golden("DeepSeek-V3"), BF16, 70_272 * 2**20) == 2**20
    assert 69 * GIB > 70_272 * 2**20
