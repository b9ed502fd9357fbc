"""Attention, storage and backend together: decode, prefill and the uncached layer say the same, in float64."""

import pytest
import torch

from tests.builders import (
    BACKENDS,
    SPECS,
    STORAGES,
    allocate,
    build,
    dense_geometry,
    each_point,
    each_spec,
    fill,
    grouped,
    latent,
    normal,
    positions,
    random_entries,
    request,
    served,
)
from variants import decode
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.decode import PREFILL_CHUNK, Decoder, Refused, plan_step

TOKENS = 9
EAGER, SDPA = BACKENDS["eager"], BACKENDS["sdpa"]


def decoder_of(module, backend=EAGER, batch=2, capacity=TOKENS, dtype=Dtype.F64, **storage):
    return Decoder(module, allocate(module.spec.layout(dtype), batch, capacity, **storage), backend)


def decode_all(decoder, x, queries=1):
    return torch.cat([decoder.decode(part) for part in x.split(queries, dim=1)], dim=1)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("prefilling", [False, True])
def test_eager_serves_whatever_a_storage_holds(prefilling):
    """So that no point of the tests below is lost silently."""
    held = {(n, s) for n, spec in SPECS.items() for s in STORAGES if not STORAGES[s].refuses(spec.layout(Dtype.F64))}
    points = {tuple(name.rsplit(", ", 2)) for name in served(prefilling)}
    assert {(n, s) for n, b, s in points if b == "eager"} == held


@each_point(served())
def test_decode_steps_equal_the_reference_at_each_position(spec, backend, storage):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    steps = decode_all(decoder_of(module, backend, storage=storage), x)
    expected = module.reference(x)
    assert expected.std() > 0.1
    same(steps, expected)


class Counted:
    """A backend that notes for how many tokens and queries it is asked to plan."""

    def __init__(self, backend, grows):
        self.backend, self.grows, self.plans = backend, grows, []

    def refuses(self, request):
        """What the other one refuses."""
        return self.backend.refuses(request)

    def plan(self, geometry, view, max_length, queries=1):
        """The other one's."""
        self.plans.append((max_length, queries))
        return self.backend.plan(geometry, view, max_length, queries)


@pytest.mark.parametrize("grows", [False, True])
def test_a_plan_serves_for_many_steps_where_the_backend_says_so(grows, monkeypatch):
    """Prefill of 3 tokens, steps of 1 to 9; a step of 2; then as many as there is room for, 16."""
    monkeypatch.setattr(decode, "AHEAD", 4)
    module, x = build(SPECS["gqa"]), normal(2, 16, SPECS["gqa"].hidden_size)
    counted = Counted(EAGER, grows)
    decoder = decoder_of(module, counted, capacity=16)
    steps = [decoder.prefill(x[:, :3]), decode_all(decoder, x[:, 3:9]), decoder.decode(x[:, 9:11])]
    steps.append(decode_all(decoder, x[:, 11:]))
    same(torch.cat(steps, dim=1), module.reference(x))
    singles = [(8, 1), (13, 1), (15, 2), (16, 1)] if grows else []
    every = [(4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (11, 2), *((n, 1) for n in range(12, 17))]
    assert counted.plans == [(3, 3), *(singles or every)]


def test_a_plan_does_not_outlive_tokens_that_were_forgotten():
    """Plans serve while lengths grow: flex has counted on tokens that all of its steps see."""
    module, x = build(SPECS["gqa"]), normal(2, 8, SPECS["gqa"].hidden_size)
    counted = Counted(EAGER, grows=True)
    decoder = decoder_of(module, counted, capacity=8)
    decode_all(decoder, x[:, :4])
    decoder.cache.truncate(torch.tensor([4, 2]))
    assert counted.plans == [(8, 1)]
    decoder.decode(x[:, 4:5])  # ragged now
    decoder.cache.truncate(torch.tensor([1, 1]))
    again = decode_all(decoder, x[:, 1:])
    same(again, module.reference(x)[:, 1:])
    assert counted.plans == [(8, 1)] * 3
    decoder.cache.truncate(torch.tensor([0, 0]))
    same(decode_all(decoder, x), module.reference(x))
    assert counted.plans == [(8, 1)] * 4


@each_spec
def test_cached_equals_uncached_recomputation(spec):
    module, x = build(spec), normal(2, 5, spec.hidden_size)
    decoder = decoder_of(module)
    for t in range(5):
        same(decoder.decode(x[:, t : t + 1]), module.reference(x[:, : t + 1])[:, -1:])


@each_point({name: point for name, point in served().items() if point[2] is STORAGES["contiguous"]})
@pytest.mark.parametrize("chunk", [1, 3, PREFILL_CHUNK])
def test_prefill_of_any_chunk_then_decode_equals_the_reference(spec, backend, storage, chunk):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    decoder = decoder_of(module, backend, storage=storage)
    outputs = [decoder.prefill(x[:, :7], chunk), decode_all(decoder, x[:, 7:])]
    same(torch.cat(outputs, dim=1), module.reference(x))


@each_point({name: p for name, p in served(prefilling=True).items() if p[1] is EAGER})
def test_prefill_into_any_storage_then_decode_equals_the_reference(spec, backend, storage):
    module, x = build(spec), normal(2, 21, spec.hidden_size)
    decoder = decoder_of(module, backend, capacity=21, storage=storage)
    outputs = [decoder.prefill(x[:, :14], chunk=5), decode_all(decoder, x[:, 14:])]
    same(torch.cat(outputs, dim=1), module.reference(x))


@each_spec
def test_prefill_writes_what_decode_writes(spec):
    module, x = build(spec), normal(2, 5, spec.hidden_size)
    prefilled, decoded = decoder_of(module), decoder_of(module)
    prefilled.prefill(x, chunk=3)
    decode_all(decoded, x)
    for s in module.spec.layout(Dtype.F64).streams:
        one, other = (d.cache.view.stream(s.name)[:, :, :5] for d in (prefilled, decoded))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@each_spec
@pytest.mark.parametrize("queries", [2, 3])
def test_several_tokens_per_step(spec, queries):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    same(decode_all(decoder_of(module), x, queries), module.reference(x))


@each_spec
def test_ragged_batch_equals_each_sequence_alone(spec):
    module, x = build(spec), normal(3, TOKENS, spec.hidden_size)
    lengths = [1, 6, 3]
    decoder = decoder_of(module, batch=3)
    decoder.prefill(x[:, :6])
    decoder.cache.truncate(torch.tensor(lengths, dtype=torch.int32))
    together = decoder.decode(x[:, 6:8])
    for b, length in enumerate(lengths):
        alone = decoder_of(module, batch=1)
        alone.prefill(x[b : b + 1, :length])
        same(together[b : b + 1], alone.decode(x[b : b + 1, 6:8]))


@each_spec
def test_replaying_a_step_changes_nothing(spec):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    decoder = decoder_of(module)
    decoder.prefill(x[:, :6])
    step = plan_step(module, decoder.cache, EAGER, 7)
    first = step(x[:, 6:7], positions(2, 1, 6))
    held = [slab.clone() for slab in decoder.cache.view.slabs]
    again = step(x[:, 6:7], positions(2, 1, 6))
    assert torch.equal(first, again)
    assert all(torch.equal(a, b) for a, b in zip(held, decoder.cache.view.slabs, strict=True))
    assert decoder.cache.view.lengths.tolist() == [7, 7]


@each_spec
def test_one_plan_serves_shorter_lengths(spec):
    """A plan is valid up to its maximum length: the same step decodes positions 5, 6 and 7."""
    module, x = build(spec), normal(2, 8, spec.hidden_size)
    decoder = decoder_of(module)
    decoder.prefill(x[:, :5])
    step = plan_step(module, decoder.cache, EAGER, 8)
    steps = [step(x[:, t : t + 1], positions(2, 1, t)) for t in (5, 6, 7)]
    same(torch.cat(steps, dim=1), module.reference(x)[:, 5:])


@each_spec
def test_a_full_cache_refuses_before_it_writes(spec):
    module, x = build(spec), normal(2, TOKENS + 1, spec.hidden_size)
    decoder = decoder_of(module)
    decode_all(decoder, x[:, :TOKENS])
    held = [slab.clone() for slab in decoder.cache.view.slabs]
    with pytest.raises(ValueError, match="cache holds 9 tokens per sequence; this step needs 10"):
        decoder.decode(x[:, TOKENS:])
    assert all(torch.equal(a, b) for a, b in zip(held, decoder.cache.view.slabs, strict=True))
    assert decoder.cache.view.lengths.tolist() == [TOKENS, TOKENS]


def test_a_refusal_names_every_reason():
    layout = grouped().layout(Dtype.BF16)
    with pytest.raises(Refused) as refused:
        plan_step(build(grouped()), allocate(layout, 2, 4), SDPA, 4, ragged=True)
    reasons = SDPA.refuses(request(grouped().geometry(), layout, dtype=Dtype.F64, ragged=True))
    assert len(reasons) == 2
    assert str(refused.value) == "; ".join(reasons)


def test_a_refused_step_writes_nothing():
    module, x = build(grouped()), normal(2, 4, 48)
    decoder = decoder_of(module, SDPA)
    decoder.prefill(x[:, :3])
    decoder.cache.truncate(torch.tensor([3, 1], dtype=torch.int32))
    with pytest.raises(Refused, match="ragged"):
        decoder.decode(x[:, 3:])
    assert decoder.cache.view.lengths.tolist() == [3, 1]
    assert decoder.cache.view.stream("key")[0, :, 3].isnan().all()


def test_a_latent_is_prefilled_by_decompressed_heads():
    """The backend is planned on 4 heads of 24 while the cache stays latent; decode reads the latent."""
    seen = []

    class Watching(Eager):
        def plan(self, geometry, view, max_length, queries=1):
            seen.append((geometry.num_kv_heads, geometry.d_qk, view.layout.streams[0].name))
            return super().plan(geometry, view, max_length, queries)

    module, x = build(latent()), normal(2, 6, 48)
    decoder = decoder_of(module, Watching())
    decoder.prefill(x[:, :5])
    decoder.decode(x[:, 5:])
    assert seen == [(4, 24, "key"), (1, 40, "latent")]
    assert {s.name for s in decoder.cache.view.layout.streams} == {"latent", "rope"}


def test_a_step_says_what_it_reads():
    module, x = build(latent(form="materialized")), normal(2, 3, 48)
    decoder = decoder_of(module)
    decoder.prefill(x[:, :2])
    step = plan_step(module, decoder.cache, EAGER, 3)
    assert step.view.lengths is decoder.cache.view.lengths
    assert (step.length, step.geometry.num_kv_heads, step.plan.kernel) == (3, 4, "eager")
    assert [s.name for s in step.view.layout.streams] == ["key", "value"]


@each_spec
@pytest.mark.parametrize("cached", [Dtype.F64, Dtype.BF16, Dtype.FP8_E4M3], ids=lambda d: d.value)
def test_a_cache_may_be_narrower_than_the_weights(spec, cached):
    """float32 weights over another cache dtype: no more error than storing the entries in that dtype explains."""
    module, x = build(spec, torch.float32), normal(2, TOKENS, spec.hidden_size, dtype=torch.float32)
    exact = build(spec).reference(x.double())
    steps = decode_all(decoder_of(module, dtype=cached), x)
    assert steps.dtype == torch.float32
    bound = {Dtype.F64: 1e-4, Dtype.BF16: 3e-2, Dtype.FP8_E4M3: 3e-1}[cached]
    assert float((steps - exact).norm() / exact.norm()) < bound


@pytest.mark.parametrize("name", ["mha", "gqa", "mqa"])
def test_uniform_weights_average_the_values(name):
    """K = 0 and V[j] = j: one key cannot show a wrong mask, the mean over positions does."""
    spec = SPECS[name]
    layout, geometry = spec.layout(Dtype.F64), spec.geometry()
    entries = random_entries(layout, 2, 8)
    entries["key"].zero_()
    entries["value"].copy_(torch.arange(8.0)[None, :, None, None])
    cache = fill(allocate(layout, 2, 8), entries, [8, 8])
    q = normal(2, 3, geometry.num_q_heads, geometry.d_qk)
    o, lse = EAGER.plan(geometry, cache.view, 8, 3).attend(q)
    assert lse is not None
    same(o, torch.tensor([2.5, 3.0, 3.5], dtype=torch.float64)[None, :, None, None].expand_as(o))
    same(lse, torch.tensor([6.0, 7.0, 8.0], dtype=torch.float64).log()[None, :, None].expand_as(lse))


def test_geometry_that_does_not_fit_is_refused_at_planning():
    cache = allocate(grouped().layout(Dtype.F64), 1, 2)
    for backend in (EAGER, SDPA):
        with pytest.raises(ValueError, match="must end within stream width 16"):
            backend.plan(dense_geometry(6, 2, 17, 16), cache.view, 2)


def test_a_step_without_tokens_is_refused():
    module = build(grouped())
    with pytest.raises(ValueError, match="at least one new token"):
        decoder_of(module).decode(torch.zeros(2, 0, module.spec.hidden_size, dtype=torch.float64))
