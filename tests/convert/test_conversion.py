"""What cannot be converted is said in one line."""

from dataclasses import replace

import pytest
import torch

from tests.builders import build, grouped, latent, normal, tied
from variants.contract.rotary import Rotary
from variants.convert import as_latent, convert, relative_error, with_kv_heads

GQA = grouped()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: with_kv_heads(grouped(12, 4), 6), "must divide the layer's 4 .* or be its multiple .*; got 6"),
        (lambda: with_kv_heads(grouped(6, 2), 4), "must be at least 1 and divide num_q_heads; got num_q_heads=6, num_"),
        (lambda: with_kv_heads(GQA, 0), "num_kv_heads must be a whole number >= 1; got 0"),
        (lambda: as_latent(grouped(qk_norm=True), 8, 8), "qk_norm cannot become MLA: its keys are normed head by head"),
        (lambda: as_latent(grouped(window=4), 8, 8), "MLA caches every token; got window=4"),
        (lambda: as_latent(GQA, 8, 7), "qk_rope_head_dim must be even, and at most the 32 .* got 7"),
        (lambda: as_latent(GQA, 8, 34), "at most the 32 rotary columns of 2 kv heads; got 34"),
        (lambda: as_latent(grouped(rotary=Rotary("none", 0)), 8, 2), "at most the 0 rotary columns .* got 2"),
        (lambda: as_latent(GQA, 57, 8), "kv_lora_rank must be at most the 56 columns .* got 57"),
        (lambda: as_latent(GQA, 0, 8), "kv_lora_rank must be a whole number >= 1; got 0"),
        (lambda: as_latent(grouped(qkv_bias=True), 8, 8, output_bias=False), "must be true where the layer has biases"),
    ],
)
def test_targets_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (replace(GQA, window=4, num_kv_heads=6), "window must be None for this layer; got 4: make .* by with_kv_heads"),
        (replace(GQA, scale=1.0), "scale must be 0.25 for this layer; got 1.0"),
        (replace(GQA, qkv_bias=True), "qkv_bias must be False for this layer; got True"),
        (latent(6, 24, 16, 8, 16), "scale must be 0.25 for this layer; got .*: make the target by as_latent"),
        (replace(as_latent(GQA, 24, 8), latent_norm=True), "latent_norm must be False for this layer; got True"),
        (replace(as_latent(GQA, 24, 8), num_latent_heads=2), "num_latent_heads must be 1 for this layer; got 2"),
        (replace(as_latent(GQA, 24, 8), q_lora_rank=8), "q_lora_rank must be None for this layer; got 8"),
        (tied(), "convert makes grouped attention or MLA; got TiedSpec"),
    ],
)
def test_targets_of_another_layer(target, message):
    with pytest.raises(ValueError, match=message):
        convert(build(GQA), target)


def test_sources_that_are_not_grouped():
    with pytest.raises(ValueError, match=r"starts from grouped attention \(MHA, GQA, MQA\); got LatentAttention"):
        convert(build(latent()), GQA)


def test_calibration_of_another_model():
    with pytest.raises(ValueError, match=r"calibration must be 48 wide; got \(1, 5, 64\)"):
        convert(build(GQA), as_latent(GQA, 8, 8), normal(1, 5, 64))
    with pytest.raises(ValueError, match="must be finite; got NaN or infinity"):
        convert(build(GQA), as_latent(GQA, 8, 8), normal(1, 5, 48) / 0)


def test_relative_error_is_the_frobenius_norm():
    layer, other, x = build(GQA), build(GQA, seed=2), normal(3, 5, 48)
    ours, theirs = layer.reference(x), other.reference(x)
    assert relative_error(layer, other, x) == pytest.approx(float((ours - theirs).norm() / ours.norm()), rel=1e-12)
    assert relative_error(layer, layer, x) == 0


@pytest.mark.parametrize("target", [with_kv_heads(GQA, 6), with_kv_heads(GQA, 1), as_latent(GQA, 24, 8)], ids=str)
def test_converting_draws_no_random_number_and_repeats_itself(target):
    layer, x = build(GQA, torch.float32), normal(1, 9, 48, dtype=torch.float32)
    before = torch.get_rng_state()
    first, second = convert(layer, target, x), convert(layer, target, x)
    assert torch.equal(torch.get_rng_state(), before)
    assert first[1] == second[1]
    assert all(torch.equal(a, b) for a, b in zip(first[0].parameters(), second[0].parameters(), strict=True))
    assert {p.dtype for p in first[0].parameters()} == {torch.float32}
    assert first[0].spec.weight_elements == sum(p.numel() for p in first[0].parameters())
