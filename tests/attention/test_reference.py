"""``reference`` is the layer of the papers, and what the cache holds is what they say."""

import numpy as np
import pytest
import torch

from tests.attention import oracle
from tests.builders import allocate, build, each_spec, grouped, kv_rows, latent, normal, positions, tied
from variants.contract.dtype import Dtype

TOKENS = 9


@each_spec
def test_reference_is_the_textbook_layer(spec):
    module, x = build(spec), normal(2, TOKENS, spec.hidden_size)
    ours = module.reference(x)
    for b in range(2):
        theirs = oracle.layer(spec, oracle.weights_of(module), x[b].numpy())
        # our angles are float32: 2e-7 of a radian at position 9
        np.testing.assert_allclose(ours[b].numpy(), theirs, rtol=0, atol=5e-6)


@each_spec
def test_reference_is_causal(spec):
    module, x = build(spec), normal(1, TOKENS, spec.hidden_size)
    whole = module.reference(x)
    changed = x.clone()
    changed[:, 6:] += 1
    again = module.reference(changed)
    assert torch.equal(again[:, :6], whole[:, :6])
    assert (again[:, 6:] - whole[:, 6:]).abs().amax(dim=-1).min() > 1e-3


@each_spec
def test_entries_fill_the_layout(spec):
    layout = spec.layout(Dtype.F64)
    entries = build(spec).entry(normal(2, 3, spec.hidden_size), positions(2, 3))
    assert {n: tuple(e.shape) for n, e in entries.items()} == {s.name: (2, 3, s.heads, s.width) for s in layout.streams}


@each_spec
def test_queries_have_the_width_that_is_scored(spec):
    q = build(spec).query(normal(2, 3, spec.hidden_size), positions(2, 3))
    assert q.shape == (2, 3, spec.geometry().num_q_heads, spec.geometry().d_qk)


@each_spec
def test_entries_of_a_token_do_not_depend_on_its_neighbours(spec):
    module, x = build(spec), normal(1, 4, spec.hidden_size)
    together = module.entry(x, positions(1, 4, 3))
    for t in range(4):
        alone = module.entry(x[:, t : t + 1], positions(1, 1, 3 + t))
        for name in together:
            torch.testing.assert_close(together[name][:, t : t + 1], alone[name], rtol=0, atol=1e-12)


@each_spec
def test_b26_distance_alone_decides_a_score(spec):
    """The score of (q at 5, k at 2) equals (q at 105, k at 102): keys are rotated once, at their own position."""
    module, x, y = build(spec), normal(1, 1, spec.hidden_size), normal(1, 1, spec.hidden_size, seed=7)
    geometry = spec.geometry()

    def score(i, j):
        q, entries = module.query(x, positions(1, 1, i)), module.entry(y, positions(1, 1, j))
        if spec.unpacked() is not None:
            entries = {"key": module._decompress(entries["latent"], entries.get("rope", entries["latent"][..., :0]))[0]}
        k = kv_rows(entries, geometry.key, geometry, 0).repeat_interleave(geometry.group_size, dim=1)
        return geometry.scale * (q * k).sum(dim=-1)

    torch.testing.assert_close(score(105, 102), score(5, 2), rtol=0, atol=2e-4)
    assert spec.rotary.width == 0 or (score(5, 2) - score(6, 2)).abs().max() > 1e-3


@pytest.mark.parametrize(("spec", "other"), [(grouped(), grouped(6, 1)), (tied(), tied(6, 1))], ids=["grouped", "tied"])
def test_grouped_and_tied_have_one_form(spec, other):
    module = build(spec)
    assert module.as_form(module.spec) is module
    with pytest.raises(ValueError, match="one form only"):
        module.as_form(other)
    view = allocate(module.spec.layout(Dtype.F64), 1, 1).view
    with pytest.raises(TypeError, match="no packed form"):
        module.unpack(view, view, 1)


def test_dtype_is_that_of_the_weights():
    assert build(grouped(), torch.bfloat16).dtype is Dtype.BF16
    assert build(latent(), torch.float64).dtype is Dtype.F64
    assert build(tied(), torch.float16).dtype is Dtype.F16
