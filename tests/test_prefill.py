"""A planned prefill and a step without a cache: what they answer, what they leave behind, how much they score."""

import pytest
import torch

from tests.builders import BACKENDS, SPECS, allocate, build, each_point, each_spec, latent, normal, served
from variants.contract.dtype import Dtype
from variants.contract.scopes import uncached
from variants.decode import PREFILL_CHUNK, Decoder, Refused, plan_step
from variants.prefill import SCORE_BYTES, chunk_rows, plan_prefill, plan_recompute

TOKENS = 9
EAGER = BACKENDS["eager"]


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def cache_of(spec, **storage):
    """A cache that already holds something else."""
    cache = allocate(spec.layout(Dtype.F64), 2, TOKENS, **storage)
    cache.fill_noise(TOKENS, seed=7)
    return cache


@each_point(served(prefilling=True))
def test_prefill_equals_the_reference_whatever_the_cache_held(spec, backend, storage):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    planned = plan_prefill(module, cache_of(spec, storage=storage), backend, TOKENS, chunk=4)
    expected = module.reference(x)
    assert expected.std() > 0.1
    same(planned(x), expected)
    assert torch.equal(planned(x), planned(x))


@each_spec
def test_prefill_leaves_behind_what_decoding_leaves(spec):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    filled, decoded = cache_of(spec), allocate(spec.layout(Dtype.F64), 2, TOKENS)
    plan_prefill(module, filled, EAGER, TOKENS, chunk=4)(x)
    decoder = Decoder(module, decoded, EAGER)
    for token in x.split(1, dim=1):
        decoder.decode(token)
    assert filled.view.lengths.tolist() == [TOKENS] * 2
    for stream in spec.layout(Dtype.F64).streams:
        same(filled.view.stream(stream.name), decoded.view.stream(stream.name))


@each_spec
def test_a_step_without_a_cache_equals_the_cached_step(spec):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    cache = cache_of(spec)
    plan_prefill(module, cache, EAGER, TOKENS)(x)
    step = plan_step(module, cache, EAGER, TOKENS)
    position = torch.full((2, 1), TOKENS - 1)
    room = allocate(uncached(spec).layout(Dtype.F64), 2, TOKENS)
    again = plan_recompute(module, room, EAGER, TOKENS)(x)
    same(again[:, -1:], step(x[:, -1:], position))
    same(again, module.reference(x))


def test_plans_may_share_the_room_for_decompressed_heads():
    from variants.prefill import room_for

    spec = latent()
    x = normal(2, TOKENS, spec.hidden_size)
    modules = [build(spec, seed=seed) for seed in (1, 2)]
    room = room_for(modules[0], 2, TOKENS, torch.device("cpu"))
    planned = [plan_prefill(module, cache_of(spec), EAGER, TOKENS, room) for module in modules]
    for module, plan in [*zip(modules, planned, strict=True)] * 2:
        same(plan(x), module.reference(x))
    assert planned[0].kernel == "eager on decompressed keys and values"
    assert room_for(build(SPECS["gqa"]), 2, TOKENS, torch.device("cpu")) is None


def test_all_reasons_of_a_backend_are_said():
    spec = SPECS["gqa window"]
    with pytest.raises(Refused, match="sdpa cannot do windowed or compressed streams"):
        plan_prefill(build(spec), cache_of(spec), BACKENDS["sdpa"], TOKENS)


@pytest.mark.parametrize(("batch", "length"), [(1, 100), (1, 4096), (1, 16384), (32, 16384), (64, 10**6)])
def test_the_scores_of_a_chunk_are_bounded(batch, length):
    spec = SPECS["mha"]
    rows = chunk_rows(spec, batch, length)
    assert 1 <= rows <= min(PREFILL_CHUNK, length)
    assert rows == 1 or 4 * batch * 6 * rows * length <= SCORE_BYTES


def test_a_short_prompt_is_one_chunk_and_a_long_one_is_not():
    assert chunk_rows(SPECS["mha"], 1, 100) == 100
    assert chunk_rows(SPECS["mha"], 32, 16384) == SCORE_BYTES // (4 * 32 * 6 * 16384)
