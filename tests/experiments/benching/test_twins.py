"""Transformers' layers give what our step gives, from the same tensors, on either kind of cache, as often as asked."""

from dataclasses import replace

import pytest
import torch

from experiments.benching.caches import filled, relative_error
from experiments.benching.sizes import SMOKE, VARIANTS
from experiments.benching.twins import CACHES, make_twin
from tests.builders import normal
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.decode import plan_step
from variants.storage.contiguous import Contiguous
from variants.view import TORCH_DTYPES

pytest.importorskip("transformers")

LENGTH = 33
TOLERANCE = {Dtype.F32: 2e-6, Dtype.BF16: 2e-2}  # float32: seen at most 6e-7
each_variant = pytest.mark.parametrize("variant", VARIANTS)
each_kind = pytest.mark.parametrize("kind", CACHES)


def pair(variant: str, kind: str, dtype: Dtype = Dtype.F32):
    """Our step, theirs, and our cache, whose newest token is noise until a step writes it."""
    twin = make_twin(variant, SMOKE, dtype, seed=5)
    cache = filled(Contiguous(), twin.ours.spec.layout(dtype), LENGTH, LENGTH, seed=5)
    x = normal(1, 1, SMOKE.hidden_size, seed=6, dtype=TORCH_DTYPES[dtype])
    step = plan_step(twin.ours, cache, Eager(), LENGTH)
    return lambda: step(x, torch.full((1, 1), LENGTH - 1)), twin.step(kind, cache.view, x), cache


@pytest.mark.parametrize("dtype", TOLERANCE)
@each_kind
@each_variant
def test_outputs_agree(variant: str, kind: str, dtype: Dtype) -> None:
    ours, theirs, _ = pair(variant, kind, dtype)
    with torch.inference_mode():
        assert relative_error(theirs(), ours()) < TOLERANCE[dtype]


@each_variant
def test_the_newest_tokens_entry_is_computed_by_both(variant: str) -> None:
    """What lay in its slot before the step changes neither."""
    ours, _, cache = pair(variant, "dynamic")
    first = ours().clone()
    for slab in cache.view.slabs:
        slab[:, :, LENGTH - 1] = 0
    assert torch.equal(ours(), first)


@each_kind
@each_variant
def test_a_restored_step_can_run_again(variant: str, kind: str) -> None:
    _, theirs, _ = pair(variant, kind)
    first = theirs().clone()
    theirs.restore()
    again = theirs().clone()
    assert torch.equal(first, again)
    if kind == "dynamic":
        assert theirs().shape == again.shape  # without restore the cache grows by one
        assert theirs._layer.keys.shape[-2] == LENGTH + 1


@each_variant
def test_every_cached_token_counts(variant: str) -> None:
    _, theirs, _ = pair(variant, "static")
    before = theirs().clone()
    theirs.restore()
    theirs._layer.keys[:, :, 7] += 1.0
    assert relative_error(theirs(), before) > 100 * TOLERANCE[Dtype.F32]


@each_variant
def test_weights_are_the_same_memory(variant: str) -> None:
    twin = make_twin(variant, SMOKE, Dtype.F32, seed=1)
    theirs = {p.untyped_storage().data_ptr() for p in twin.theirs.parameters()}
    ours = {p.untyped_storage().data_ptr() for p in twin.ours.parameters()}
    assert ours == theirs
    assert not any(p.requires_grad for p in (*twin.theirs.parameters(), *twin.ours.parameters()))


@each_variant
def test_seeds_give_other_weights(variant: str) -> None:
    first, second = (make_twin(variant, SMOKE, Dtype.F32, seed) for seed in (1, 2))
    assert not torch.equal(first.ours.o_proj.weight, second.ours.o_proj.weight)
    assert float(first.ours.o_proj.weight.std()) == pytest.approx(SMOKE.hidden_size**-0.5, rel=0.1)


def test_theirs_run_as_a_user_gets_them() -> None:
    """SDPA; no mask over a dynamic cache, and a static cache no longer than needed with the mask its models make."""
    from torch.nn import functional

    masks = {}
    for kind in CACHES:
        _, theirs, _ = pair("gqa8", kind)
        with pytest.MonkeyPatch.context() as patch:
            real = functional.scaled_dot_product_attention

            def watched(q, k, v, attn_mask=None, kind=kind, real=real, **options):
                masks[kind] = None if attn_mask is None else tuple(attn_mask.shape)
                assert k.shape[-2] == LENGTH
                return real(q, k, v, attn_mask=attn_mask, **options)

            patch.setattr(functional, "scaled_dot_product_attention", watched)
            theirs()
    assert masks == {"dynamic": None, "static": (1, 1, 1, LENGTH)}


def test_the_latent_is_cached_compressed() -> None:
    """What transformers caches for DeepSeek is the latent too: the comparison is of caches of equal size."""
    _, theirs, cache = pair("mla", "dynamic")
    cached = theirs._layer.keys.numel() + theirs._layer.values.numel()
    assert cached == (LENGTH - 1) * cache.view.layout.bytes_per_token / 4


def test_longer_contexts_fit_the_rotary_embedding() -> None:
    sizes = replace(SMOKE, steps=(LENGTH,))
    assert make_twin("mha", sizes, Dtype.F32, 0).config.max_position_embeddings == 2 * LENGTH
