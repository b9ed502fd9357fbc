"""MLA's three forms: the same weights, the same answers, and what each leaves in the cache."""

from dataclasses import replace

import pytest
import torch

from tests.builders import BACKENDS, DTYPES, allocate, build, in_form, latent, normal
from variants.attention.latent.spec import FORMS, LatentSpec
from variants.contract.dtype import Dtype
from variants.contract.rotary import Rotary
from variants.decode import Decoder

B27 = latent(16, 512, 128, 64, 128, hidden=256, rotary=Rotary("interleaved", 64))


def decode_after(module, form, x, prompt, lengths, dtype):
    """Prefill ``prompt`` tokens in a form, forget down to ``lengths``, decode the last token; output and cache."""
    attention = module.as_form(in_form(module.spec, form))
    cache = allocate(attention.spec.layout(dtype), len(x), prompt + 1)
    decoder = Decoder(attention, cache, BACKENDS["eager"])
    decoder.prefill(x[:, :prompt])
    cache.truncate(torch.tensor(lengths, dtype=torch.int32))
    return decoder.decode(x[:, prompt:]), cache


@pytest.mark.parametrize("q_lora_rank", [None, 20])
def test_three_forms_agree_on_prefill_and_decode(q_lora_rank):
    module, x = build(latent(q_lora_rank=q_lora_rank)), normal(2, 12, 48)
    expected = module.reference(x)
    for form in FORMS:
        attention = module.as_form(in_form(module.spec, form))
        decoder = Decoder(attention, allocate(attention.spec.layout(Dtype.F64), 2, 12), BACKENDS["eager"])
        prefilled = decoder.prefill(x[:, :7])
        decoded = torch.cat([decoder.decode(x[:, t : t + 1]) for t in range(7, 12)], dim=1)
        torch.testing.assert_close(torch.cat([prefilled, decoded], dim=1), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("changes", [{}, {"nope": 0}, {"rope": 0, "rotary": Rotary("none", 0)}], ids=str)
def test_what_converted_layers_lack_is_lacking_in_every_form(form, changes):
    """No norm on the latent, biases, and keys that are all rotary, or not at all."""
    spec = latent(form=form, latent_norm=False, qkv_bias=True, output_bias=True, **changes)
    module, x = build(spec), normal(2, 12, 48)
    assert spec.weight_elements == sum(p.numel() for p in module.parameters())
    cache = allocate(spec.layout(Dtype.F64), 2, 12)
    decoder = Decoder(module, cache, BACKENDS["eager"])
    outputs = [decoder.prefill(x[:, :7]), *(decoder.decode(part) for part in x[:, 7:].split(1, dim=1))]
    expected = module.reference(x)
    torch.testing.assert_close(torch.cat(outputs, dim=1), expected, rtol=0, atol=1e-10)
    assert (expected - build(replace(spec, output_bias=False)).reference(x)).abs().max() > 0.1
    spec.geometry().check((spec.unpacked() or spec).layout(Dtype.F64))


def test_keys_that_are_all_rotary_or_not_at_all():
    """All rotary: queries give the latent no weight; without rotation the latent alone is cached."""
    rotary, plain = latent(nope=0), latent(rope=0, rotary=Rotary("none", 0))
    q = build(rotary).query(normal(1, 3, 48), torch.arange(3)[None])
    assert (q.shape[-1], bool(q[..., :32].any()), bool(q[..., 32:].all())) == (40, False, True)
    assert rotary.geometry() == replace(latent(), scale=rotary.scale).geometry()
    assert [s.stream for s in plain.geometry().key] == ["latent"]
    assert [spec.layout(Dtype.BF16).bytes_per_token for spec in (rotary, plain)] == [80, 64]
    with pytest.raises(ValueError, match=r"must be >= 1; got 0 \+ 0"):
        LatentSpec(48, 4, 32, 0, 0, 12, Rotary("none", 0), 1.0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(Dtype.F64, 1e-10), (Dtype.F32, 1e-4), (Dtype.BF16, 2e-2)])
def test_b27_absorbed_equals_expanded_and_materialized(dtype, tolerance):
    """16 heads, nope 128, rope 64, v 128, latent 512; ragged lengths [1, 77] after the step."""
    exact_module, x = build(B27), normal(2, 77, 256)
    module = build(B27, DTYPES[dtype])
    x_low = x.to(DTYPES[dtype])
    outputs = {form: decode_after(module, form, x_low, 76, [0, 76], dtype)[0].double() for form in FORMS}
    exact, _ = decode_after(exact_module, "absorbed", x, 76, [0, 76], Dtype.F64)
    largest = exact.abs().amax(dim=(1, 2), keepdim=True)
    assert largest.min() > 0.1
    for output in outputs.values():
        assert ((output - outputs["absorbed"]) / largest).abs().max() <= tolerance
        assert ((output - exact) / largest).abs().max() <= 1.5 * tolerance


@pytest.mark.parametrize("form", ["absorbed", "materialized"])
def test_b27_both_latent_forms_read_the_same_cache(form):
    module, x = build(B27, torch.bfloat16), normal(2, 77, 256, dtype=torch.bfloat16)
    _, cache = decode_after(module, form, x, 76, [0, 76], Dtype.BF16)
    lengths = cache.view.lengths.tolist()
    assert lengths == [1, 77]
    assert sum(cache.view.layout.bytes(t) for t in lengths) == 89_856
    _, other = decode_after(module, "absorbed", x, 76, [0, 76], Dtype.BF16)
    assert torch.equal(cache.view.slabs[0], other.view.slabs[0])
    assert cache.allocated_bytes == 2 * 77 * 576 * 2  # no expanded key or value beside it


def test_as_form_shares_weights_and_leaves_the_module_alone():
    module = build(latent())
    twin = module.as_form(in_form(module.spec, "expanded"))
    assert module.spec.form == "absorbed"
    assert all(a is b for a, b in zip(module.parameters(), twin.parameters(), strict=True))
    module.kv_b_proj.weight.zero_()
    _, value = twin._decompress(normal(1, 2, 1, 32), normal(1, 2, 1, 8))
    assert not value.any()


def test_as_form_refuses_other_sizes():
    with pytest.raises(ValueError, match="changes the form only"):
        build(latent()).as_form(latent(rank=16, form="expanded"))


def test_absorbed_weights_are_views():
    module = build(latent())
    up_key, up_value = module._up()
    weight = module.kv_b_proj.weight.untyped_storage().data_ptr()
    assert up_key.untyped_storage().data_ptr() == up_value.untyped_storage().data_ptr() == weight
    assert (up_key.shape, up_value.shape) == ((4, 16, 32), (4, 12, 32))
