"""Work of prefill, of a step without a cache and of a step's parts, against hand arithmetic and torch's own counts."""

import pytest
from torch.utils.flop_counter import FlopCounterMode

from experiments.record import SCOPES as RECORDED
from tests.builders import BACKENDS, allocate, build, each_spec, grouped, latent, normal, window_of
from variants.contract.cost import Part, Point, Work, step_work
from variants.contract.dtype import Dtype
from variants.contract.keep import All, Every, Fixed, Keep, Window
from variants.contract.layout import CacheLayout, Stream
from variants.contract.scopes import PARTS, SCOPES, causal_pairs, part_weights, scope_work, uncached
from variants.prefill import plan_prefill, plan_recompute
from variants.protocols import Absorbing

FOUR = Point(1, 4, 1, Dtype.BF16)


def test_a_row_may_have_every_scope_that_is_counted():
    assert sorted(RECORDED) == sorted(SCOPES)


def test_prefill_of_four_tokens_by_hand():
    """H = 2, G = 1, d = 8, D = 16: 10 causal pairs, weights 16 x (16 + 8 + 8 + 16) = 768."""
    spec = grouped(2, 1, 8, hidden=16)
    flops = 2 * 4 * 768 + 2 * 10 * 2 * (8 + 8)
    moved = 768 + 2 * 4 * 16 + 4 * 2 * (8 + 8) + 4 * (8 + 8)  # weights, x and y, q and o, entries
    assert scope_work("prefill", spec, Dtype.BF16, FOUR) == Work(2 * moved, flops)
    assert scope_work("recompute", spec, Dtype.BF16, FOUR) == Work(2 * moved, flops)


def test_a_batch_has_as_many_rows_but_reads_its_weights_once():
    spec = grouped(2, 1, 8, hidden=16)
    one, three = (scope_work("prefill", spec, Dtype.BF16, Point(b, 4, 1, Dtype.BF16)) for b in (1, 3))
    assert three.flops == 3 * one.flops
    assert three.io_bytes - 2 * 768 == 3 * (one.io_bytes - 2 * 768)


def test_mla_is_prefilled_by_decompressed_heads_by_hand():
    """H = 2, rank 4, nope 3, rope 2, v 5, D = 16; scores 3 + 2 wide, values 5, nothing absorbed."""
    spec = latent(2, rank=4, nope=3, rope=2, v=5, hidden=16)
    weights = 16 * 2 * 5 + 16 * (4 + 2) + 4 * 2 * (3 + 5) + 2 * 5 * 16
    flops = 2 * 4 * weights + 2 * 10 * 2 * (5 + 5)
    rows = 2 * 4 * 16 + 4 * 2 * (5 + 5)
    assert scope_work("prefill", spec, Dtype.BF16, FOUR) == Work(2 * (weights + rows + 4 * 6), flops)
    assert scope_work("recompute", spec, Dtype.BF16, FOUR) == Work(2 * (weights + rows + 4 * 2 * (5 + 5)), flops)
    assert uncached(spec).form == "expanded"


@pytest.mark.parametrize("window", [None, 1, 3, 9, 10, 100])
def test_causal_pairs_by_counting_them(window):
    spec = grouped(2, 1, 8, window=window)
    pairs = [(i, j) for i in range(10) for j in range(10) if i - (window or 10) < j <= i]
    assert causal_pairs(spec.layout(Dtype.BF16), spec.geometry(), 10) == len(pairs)


def test_causal_pairs_where_entries_are_sparse():
    geometry = grouped(2, 1, 8).geometry()
    keeps: dict[Keep, int] = {Every(3): 0 + 0 + 1 + 1 + 1 + 2 + 2, Fixed(4): 7 * 4, All(): 28, Window(2): 13}
    for keep, pairs in keeps.items():
        streams = tuple(Stream(name, 1, 8, Dtype.BF16, keep) for name in ("key", "value"))
        assert causal_pairs(CacheLayout(streams), geometry, 7) == pairs


def test_a_long_prompt_is_counted_at_once():
    spec = grouped(2, 1, 8)
    assert causal_pairs(spec.layout(Dtype.BF16), spec.geometry(), 10**9) == 10**9 * (10**9 + 1) // 2


@each_spec
@pytest.mark.parametrize(("batch", "queries"), [(1, 1), (3, 2)])
def test_the_parts_of_a_step_add_up_to_it(spec, batch, queries):
    point = Point(batch, 9, queries, Dtype.BF16)
    step = step_work(spec.layout(Dtype.BF16), spec.geometry(), spec.matmuls(), spec.hidden_size, point)
    parts = [scope_work(part, spec, Dtype.BF16, point) for part in PARTS]
    assert sum(parts, Work(0, 0)) == step
    assert sum(part_weights(part, spec) for part in PARTS) == sum(m.weights for m in spec.matmuls())


@each_spec
def test_every_part_of_a_step_is_one_that_can_run_alone(spec):
    absorbing = any(m.part is Part.ABSORB for m in spec.matmuls())
    assert absorbing == (spec.prefilling() != spec)
    assert not absorbing or isinstance(build(spec), Absorbing)


@each_spec
@pytest.mark.parametrize("scope", ["prefill", "recompute"])
def test_what_four_more_rows_cost_is_what_torch_counts(spec, scope):
    """One row at a time, so that no score is computed that causality hides; torch turns products of one key into sums.

    Hence the difference of two prompts: both have such a first row.
    """
    if window_of(spec.layout(Dtype.F64)) is not None:
        pytest.skip("eager also scores what a window hides")
    predicted = [scope_work(scope, spec, Dtype.F64, Point(2, t, 1, Dtype.F64)).flops for t in (3, 7)]
    assert predicted[1] - predicted[0] == counted(spec, scope, 7) - counted(spec, scope, 3)


def counted(spec, scope, tokens):
    """FLOPs of the products that torch runs for a prompt."""
    form = spec if scope == "prefill" else uncached(spec)
    plan = plan_prefill if scope == "prefill" else plan_recompute
    cache = allocate(form.layout(Dtype.F64), 2, tokens)
    planned = plan(build(spec), cache, BACKENDS["eager"], tokens, chunk=1)
    with FlopCounterMode(display=False) as counter:
        planned(normal(2, tokens, spec.hidden_size))
    return counter.get_total_flops()


def test_a_scope_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="scope must be one of attend, step, prefill, .*; got 'fill'"):
        scope_work("fill", grouped(), Dtype.BF16, FOUR)
