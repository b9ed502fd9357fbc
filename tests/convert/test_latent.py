"""Grouped to MLA: exact where nothing is left out, and as good as its rank elsewhere."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.attention import oracle
from tests.builders import build, grouped, in_form, normal
from tests.convert.layers import SOURCES, decoded, inputs, source
from variants.attention.latent.spec import FORMS
from variants.contract.rotary import Rotary
from variants.convert import as_latent, convert, relative_error
from variants.convert.targets import rotary_columns

each_source = pytest.mark.parametrize("name", SOURCES)


def largest(spec, form="absorbed"):
    """The target that loses nothing."""
    rope = rotary_columns(spec)
    return as_latent(spec, 2 * spec.num_kv_heads * spec.head_dim - rope, rope, form)


@each_source
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("calibrated", [False, True])
def test_nothing_left_out_is_the_same_layer_and_saves_no_byte(name, form, calibrated):
    """All rotary columns of all kv heads, and a latent that holds the rest: 2 G d elements, as before."""
    layer, x = source(name), inputs(seed=5)
    mla, told = convert(layer, largest(layer.spec, form), inputs() if calibrated else None)
    expected = layer.reference(x)
    assert expected.std() > 0.1
    assert (told.method, told.exact) == ("low_rank", True)
    torch.testing.assert_close(mla.reference(x), expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(decoded(mla, x), mla.reference(x), rtol=0, atol=1e-10)
    assert told.bytes_per_token_before == 2 * layer.spec.num_kv_heads * 16 * 8
    if form != "expanded":
        assert told.bytes_per_token_after == told.bytes_per_token_before


def test_all_rotary_keys_are_the_rotated_keys_and_the_latent_is_the_values():
    """By the papers' own layer in numpy; keys of all heads in one row, the frequencies repeated head by head."""
    layer, x = source("gqa"), inputs(9, 1)
    mla, _ = convert(layer, largest(layer.spec))
    assert (mla.spec.qk_nope_head_dim, mla.spec.qk_rope_head_dim, mla.spec.kv_lora_rank) == (0, 32, 32)
    assert sorted(mla.spec.rotary.frequencies()) == pytest.approx(sorted(2 * layer.spec.rotary.frequencies()))
    theirs = oracle.layer(layer.spec, oracle.weights_of(layer), x[0].numpy())
    ours = oracle.layer(mla.spec, oracle.weights_of(mla), x[0].numpy())
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    value = torch.einsum("cd,btd->btc", mla.kv_a_proj_with_mqa.weight[:32], x)
    gram = torch.linalg.matrix_rank(torch.cat([value, layer.v_proj(x)], dim=-1)[0])
    assert gram == torch.linalg.matrix_rank(layer.v_proj(x)[0])  # the latent spans what the values span


@each_source
@pytest.mark.parametrize("calibrated", [False, True])
def test_error_falls_with_rank(name, calibrated):
    """On held-out inputs; each rank may be a hundredth worse than the one before, for ranks are fitted to others."""
    layer, held = source(name), inputs(seed=5)
    rope = rotary_columns(layer.spec)
    columns = 2 * layer.spec.num_kv_heads * 16 - rope
    ranks = [columns * part // 4 for part in (1, 2, 3, 4)]
    x = inputs(200) if calibrated else None
    errors = [relative_error(layer, convert(layer, as_latent(layer.spec, r, rope), x)[0], held) for r in ranks]
    assert all(later <= earlier + 0.01 for earlier, later in pairwise(errors)), errors
    assert errors[0] > 0.02
    assert errors[-1] < 1e-12


def test_error_falls_with_rotary_width():
    layer, x, held = source("gqa"), inputs(200), inputs(seed=5)
    errors = []
    for rope in (0, 8, 16, 24, 32):
        mla, told = convert(layer, as_latent(layer.spec, 64 - rope, rope), x)
        assert told.exact == (rope == 32)
        errors.append(relative_error(layer, mla, held))
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 0.1


@each_source
def test_calibration_beats_weights_alone(name):
    layer, held = source(name), inputs(seed=5)
    rope = rotary_columns(layer.spec)
    target = as_latent(layer.spec, 2 * layer.spec.num_kv_heads * 4, rope)
    fitted, told = convert(layer, target, inputs(400))
    blind, untold = convert(layer, target)
    assert untold.error is None
    assert told.error == relative_error(layer, fitted, inputs(400))
    assert relative_error(layer, fitted, held) < 0.8 * relative_error(layer, blind, held)


@each_source
@pytest.mark.parametrize("form", FORMS)
def test_a_lossy_layer_decodes_as_it_says(name, form):
    layer, x = source(name), inputs(12, seed=5)
    rope = rotary_columns(layer.spec) // 4 * 2
    mla, _ = convert(layer, as_latent(layer.spec, 12, rope, form), inputs())
    assert (mla.spec.form, len(mla.spec.rotary.frequencies())) == (form, rope // 2)
    torch.testing.assert_close(decoded(mla, x), mla.reference(x), rtol=0, atol=1e-10)
    absorbed = mla.as_form(in_form(mla.spec, "absorbed"))
    torch.testing.assert_close(decoded(absorbed, x), mla.reference(x), rtol=0, atol=1e-10)
    theirs = oracle.layer(mla.spec, oracle.weights_of(mla), x[0].numpy())
    np.testing.assert_allclose(mla.reference(x)[0].numpy(), theirs, rtol=0, atol=5e-6)


def test_the_mean_of_lost_values_is_in_the_output():
    """Inputs that are all alike: values are one constant, which the output's bias holds at any rank."""
    layer, x = source("qwen2: biased qkv"), inputs(1, 1).expand(2, 8, 48)
    mla, told = convert(layer, as_latent(layer.spec, 1, 0), x)
    torch.testing.assert_close(mla.reference(x), layer.reference(x), rtol=0, atol=1e-10)
    assert told.error is not None
    assert told.error < 1e-12


def test_without_an_output_bias_the_latent_has_to_hold_the_mean():
    layer, x = source("gqa"), inputs(200)
    with_bias, without = (
        convert(layer, as_latent(layer.spec, 8, 32, output_bias=bias), x)[0] for bias in (True, False)
    )
    assert without.o_proj.bias is None
    assert relative_error(layer, with_bias, x) < relative_error(layer, without, x) < 1


def test_slow_pairs_lose_their_rotation_first():
    """Of pairs that weigh alike, those that hardly turn are not missed."""
    spec = grouped(2, 1, rotary=Rotary("half", 16, inv_freq=(1.0, 1e-7, 0.5, 1e-8, 1e-7, 0.3, 1e-9, 0.2)))
    layer, x = build(spec), inputs()
    mla, told = convert(layer, as_latent(spec, 24, 8), x)
    assert sorted(mla.spec.rotary.frequencies()) == [0.2, 0.3, 0.5, 1.0]
    assert told.error is not None
    assert told.error < 1e-4
    assert not told.exact


def test_heads_that_point_the_same_way_need_one_rotary_key():
    """Keys that differ by a phase and a factor per frequency are one component: no real mixing could do that."""
    layer = build(grouped(6, 3))
    first = torch.complex(*layer.k_proj.weight[:16].chunk(2))
    turned = [first * torch.polar(0.5 + normal(8, seed=g).abs(), normal(8, seed=9 + g))[:, None] for g in (1, 2)]
    layer.k_proj.weight[16:] = torch.cat([part for key in turned for part in (key.real, key.imag)])
    mla, told = convert(layer, as_latent(layer.spec, 48, 16), inputs())
    assert told.error is not None
    assert told.error < 1e-6
    assert mla.spec.rotary.frequencies() != layer.spec.rotary.frequencies()
    assert sorted(mla.spec.rotary.frequencies()) == pytest.approx(sorted(layer.spec.rotary.frequencies()))
