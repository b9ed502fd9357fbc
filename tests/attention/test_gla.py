"""GLA: several latent heads, each an MLA of its own for its share of the query heads, beside one rotary key."""

import pytest
import torch

from tests.builders import allocate, build, gla, in_form, latent, normal, tiny_model
from variants.attention.latent.spec import FORMS, LatentSpec
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.contract.layout import Sharding
from variants.contract.rotary import Rotary
from variants.decode import Decoder


def wide(heads=16, latents=2):
    """The paper's sizes: 512 latent columns in all, heads of 128, 64 rotary."""
    rotary = Rotary("interleaved", 64)
    return latent(heads, 512, 128, 64, 128, rotary=rotary, num_latent_heads=latents)


def bytes_per_token(spec):
    return spec.layout(Dtype.BF16).bytes_per_token


@pytest.mark.parametrize("q_lora_rank", [None, 20])
@pytest.mark.parametrize("latents", [2, 4])
def test_three_forms_agree_with_the_reference(latents, q_lora_rank):
    module, x = build(latent(num_latent_heads=latents, q_lora_rank=q_lora_rank)), normal(2, 12, 48)
    expected = module.reference(x)
    assert expected.std() > 0.1
    for form in FORMS:
        attention = module.as_form(in_form(module.spec, form))
        decoder = Decoder(attention, allocate(attention.spec.layout(Dtype.F64), 2, 12), Eager())
        outputs = [decoder.prefill(x[:, :7]), *(decoder.decode(part) for part in x[:, 7:].split(1, dim=1))]
        torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=0, atol=1e-10)


def test_one_latent_head_is_mla():
    """Two latents made alike are one latent of their width: the same numbers from the same weights."""
    two, mla, x = build(gla()), build(latent(rank=16)), normal(2, 9, 48)
    for name in ("q_proj", "o_proj", "kv_b_proj", "kv_a_layernorm"):
        getattr(mla, name).weight.copy_(getattr(two, name).weight)
    rows = two.kv_a_proj_with_mqa.weight
    rows[16:32] = rows[:16]
    mla.kv_a_proj_with_mqa.weight.copy_(torch.cat([rows[:16], rows[32:]]))
    torch.testing.assert_close(two.reference(x), mla.reference(x), rtol=0, atol=1e-12)
    given = LatentSpec.from_model(tiny_model(), num_latent_heads=1)
    assert given == LatentSpec.from_model(tiny_model())


@pytest.mark.parametrize("form", FORMS)
def test_ranks_are_mlas_that_add_up_to_the_layer(form):
    whole, x = build(gla(form=form)), normal(1, 7, 48)
    spec, total = whole.spec, torch.zeros(1, 7, 48, dtype=torch.float64)
    for rank in range(2):
        part = build(spec.shard(2))
        assert (part.spec.num_latent_heads, part.spec.kv_lora_rank, part.spec.num_q_heads) == (1, 16, 2)
        for name in ("q_proj", "kv_b_proj"):
            getattr(part, name).weight.copy_(getattr(whole, name).weight.chunk(2)[rank])
        latents, rope = whole.kv_a_proj_with_mqa.weight.split([32, 8])
        part.kv_a_proj_with_mqa.weight.copy_(torch.cat([latents.chunk(2)[rank], rope]))
        part.kv_a_layernorm.weight.copy_(whole.kv_a_layernorm.weight)
        part.o_proj.weight.copy_(whole.o_proj.weight.chunk(2, dim=1)[rank])
        decoder = Decoder(part, allocate(part.spec.layout(Dtype.F64), 1, 7), Eager())
        total += torch.cat([decoder.prefill(x[:, :5]), decoder.decode(x[:, 5:6]), decoder.decode(x[:, 6:])], dim=1)
    torch.testing.assert_close(total, whole.reference(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("tp", "per_rank"), [(1, 1152), (2, 640), (4, 640), (8, 640)])
def test_two_ranks_hold_a_latent_each(tp, per_rank):
    rank = wide().shard(tp)
    assert bytes_per_token(rank) == per_rank
    assert (rank.num_q_heads, rank.num_latent_heads, rank.latent_width) == (16 // tp, max(1, 2 // tp), 256)
    assert bytes_per_token(wide(latents=1).shard(tp)) == 1152  # MLA's latent is whole on every rank


def test_bytes_are_mlas_and_the_keys_are_narrower():
    two, one = wide(128), wide(128, 1)
    assert bytes_per_token(two) == bytes_per_token(one) == 1_152
    assert (two.geometry().d_qk, two.geometry().d_v, two.geometry().num_kv_heads) == (320, 256, 2)
    assert two.geometry().scale == one.geometry().scale
    assert two.geometry().shares_state
    assert [s.sharding for s in two.layout(Dtype.BF16).streams] == [Sharding.HEADS, Sharding.REPLICATED]


@pytest.mark.parametrize("form", FORMS)
def test_weights_are_counted_in_every_form(form):
    """Two latents: kv_b reads 16 columns instead of 32, and the norm has 16."""
    one, two = (latent(form=form, num_latent_heads=n).weight_elements for n in (1, 2))
    assert one - two == 4 * (16 + 12) * 16 + 16
    assert two == sum(p.numel() for p in build(gla(form=form)).parameters())


@pytest.mark.parametrize("latents", [0, -1, 2.0, "2", None, True])
def test_latent_heads_are_whole_and_positive(latents):
    with pytest.raises(ValueError, match=f"num_latent_heads must be a whole number >= 1; got {latents!r}"):
        latent(num_latent_heads=latents)


def test_latent_heads_that_do_not_divide_are_named():
    with pytest.raises(
        ValueError, match="num_latent_heads must be at least 1 and divide num_q_heads; got num_q_heads=4, num_l"
    ):
        latent(num_latent_heads=3)
    with pytest.raises(
        ValueError, match="num_latent_heads must divide kv_lora_rank; got kv_lora_rank=33, num_latent_heads=2"
    ):
        latent(rank=33, num_latent_heads=2)
    with pytest.raises(
        ValueError, match="tp must divide num_latent_heads or be its multiple; got num_latent_heads=2, tp=3"
    ):
        latent(6, num_latent_heads=2).shard(3)
