"""GTA: what it caches, and that it is a grouped attention whose keys and values are built from one state."""

import pytest
import torch

from tests.builders import allocate, build, grouped, normal, positions, presets, tied, tiny_model
from variants.attention.tied.spec import TiedSpec
from variants.backend.eager import Eager
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.layout import Sharding
from variants.contract.rotary import Rotary
from variants.decode import Decoder


def bytes_per_token(spec):
    return spec.layout(Dtype.BF16).bytes_per_token


def as_grouped(module):
    """A GQA layer with the same answers; it turns a head's first columns, so keys and queries are put in that order."""
    spec = module.spec
    gqa = build(grouped(spec.num_q_heads, spec.num_kv_heads, spec.head_dim, spec.hidden_size, rotary=spec.rotary))
    q = module.q_proj.weight.unflatten(0, (spec.num_q_heads, -1))
    tied = module.kv_proj.weight.unflatten(0, (spec.num_kv_heads, -1))
    rope = module.k_rope_proj.weight.expand(spec.num_kv_heads, -1, -1)
    plain = spec.tied_width
    gqa.q_proj.weight.copy_(torch.cat([q[:, plain:], q[:, :plain]], dim=1).flatten(0, 1))
    gqa.k_proj.weight.copy_(torch.cat([rope, tied[:, :plain]], dim=1).flatten(0, 1))
    gqa.v_proj.weight.copy_(module.kv_proj.weight)
    gqa.o_proj.weight.copy_(module.o_proj.weight)
    return gqa


def decoded(module, x):
    """Prefill of four tokens, then one by one."""
    decoder = Decoder(module, allocate(module.spec.layout(Dtype.F64), len(x), x.shape[1]), Eager())
    return torch.cat([decoder.prefill(x[:, :4]), *(decoder.decode(part) for part in x[:, 4:].split(1, dim=1))], dim=1)


@pytest.mark.parametrize("kv_heads", [1, 2, 3, 6])
def test_it_is_a_gqa_whose_keys_and_values_share_a_state(kv_heads):
    module, x = build(tied(6, kv_heads)), normal(2, 9, 48)
    gqa = as_grouped(module)
    expected = gqa.reference(x)
    assert expected.std() > 0.1
    for ours in (module.reference(x), decoded(module, x), decoded(gqa, x)):
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


def test_bytes_of_128_heads_in_8_groups():
    gta, gqa = tied(128, 8, 128, 64), grouped(128, 8, 128)
    assert bytes_per_token(gta) == 2_176
    assert bytes_per_token(gqa) / bytes_per_token(gta) == pytest.approx(1.882, abs=1e-3)
    assert bytes_per_token(grouped(128, 128, 128)) / bytes_per_token(gta) == pytest.approx(30.12, abs=0.01)


def test_it_caches_half_of_a_gqa_and_one_key_for_all():
    """Of d = 128 and G groups: 2 G d against G d + d / 2; the more groups, the nearer to half."""
    ratios = [bytes_per_token(grouped(64, g, 128)) / bytes_per_token(tied(64, g, 128, 64)) for g in (1, 4, 16, 64)]
    assert ratios == pytest.approx([4 / 3, 16 / 9, 64 / 33, 256 / 129])


@pytest.mark.parametrize(("tp", "per_rank"), [(1, 1152), (2, 640), (4, 384), (8, 384)])
def test_every_rank_keeps_the_rotary_key(tp, per_rank):
    whole = tied(16, 4, 128, 64)
    rank = whole.shard(tp)
    assert bytes_per_token(rank) == per_rank
    assert (rank.num_q_heads, rank.num_kv_heads) == (16 // tp, max(1, 4 // tp))
    assert (rank.scale, rank.qk_rope_head_dim) == (whole.scale, 64)
    assert [s.sharding for s in rank.layout(Dtype.BF16).streams] == [Sharding.HEADS, Sharding.REPLICATED]


def test_ranks_add_up_to_the_layer():
    whole, x = build(tied(8, 4)), normal(1, 7, 48)
    total = torch.zeros(1, 7, 48, dtype=torch.float64)
    for rank in range(2):
        part = build(whole.spec.shard(2))
        for name in ("q_proj", "kv_proj"):
            getattr(part, name).weight.copy_(getattr(whole, name).weight.chunk(2)[rank])
        part.k_rope_proj.weight.copy_(whole.k_rope_proj.weight)
        part.o_proj.weight.copy_(whole.o_proj.weight.chunk(2, dim=1)[rank])
        total += part.reference(x)
    torch.testing.assert_close(total, whole.reference(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("q", "kv", "tp", "named"), [(40, 10, 4, "num_kv_heads=10, tp=4"), (6, 2, 4, "num_q_heads=6")])
def test_uneven_splits_are_refused(q, kv, tp, named):
    with pytest.raises(ValueError, match=named):
        tied(q, kv).shard(tp)


def test_values_lie_inside_the_stream_of_the_keys():
    spec = tied()
    geometry, layout = spec.geometry(), spec.layout(Dtype.F64)
    assert geometry.key == (Span("tied", 0, 10), Span("rope", 0, 6))
    assert geometry.value == (Span("tied", 0, 16),)
    assert not geometry.shares_state  # the last columns of a value are in no key
    view = allocate(layout, 1, 3).view
    assert view.span(geometry.key[0]).data_ptr() == view.span(geometry.value[0]).data_ptr()
    assert sum(s.heads * s.width for s in layout.streams) == 2 * 16 + 6


def test_the_tied_state_is_not_rotated_and_the_shared_key_is():
    module, x = build(tied()), normal(1, 1, 48)
    near, far = (module.entry(x, positions(1, 1, t)) for t in (0, 9))
    assert torch.equal(near["tied"], far["tied"])
    assert not torch.allclose(near["rope"], far["rope"])
    queries = [module.query(x, positions(1, 1, t)) for t in (0, 9)]
    assert torch.equal(queries[0][..., :10], queries[1][..., :10])
    assert not torch.allclose(queries[0][..., 10:], queries[1][..., 10:])


def test_from_a_model():
    spec = TiedSpec.from_model(tiny_model())
    assert (spec.num_q_heads, spec.num_kv_heads, spec.head_dim, spec.qk_rope_head_dim) == (4, 2, 16, 8)
    assert (spec.rotary, spec.scale) == (Rotary("half", 8), 0.25)
    assert TiedSpec.from_model(tiny_model(num_key_value_heads=None)).num_kv_heads == 4
    assert TiedSpec.from_model(tiny_model(query_pre_attn_scalar=64)).scale == 0.125
    own = TiedSpec.from_model(tiny_model(), num_kv_heads=1, qk_rope_head_dim=4)
    assert (own.num_kv_heads, own.qk_rope_head_dim, own.rotary.width) == (1, 4, 4)
    assert 80 * bytes_per_token(TiedSpec.from_model(presets()["llama3_70b"])) == 80 * 2 * (8 * 128 + 64)


def test_without_rotation_the_shared_key_still_counts():
    module, x = build(TiedSpec.from_model(tiny_model(rope_style="none"))), normal(1, 5, 64)
    torch.testing.assert_close(decoded(module, x), module.reference(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("field", ["num_kv_heads", "qk_rope_head_dim"])
@pytest.mark.parametrize("value", [0, -2, 2.0, "2", True])
def test_sizes_are_whole_and_positive(field, value):
    with pytest.raises(ValueError, match=f"{field} must be a whole number >= 1; got {value!r}"):
        TiedSpec.from_model(tiny_model(), **{field: value})


def test_sizes_that_do_not_fit_are_named():
    with pytest.raises(
        ValueError, match="num_kv_heads must be at least 1 and divide num_q_heads; got num_q_heads=6, num_"
    ):
        tied(6, 4)
    with pytest.raises(ValueError, match="got qk_rope_head_dim=16, head_dim=16"):
        tied(rope=16)
    with pytest.raises(ValueError, match="rope width must be qk_rope_head_dim=6; got 8"):
        tied(rotary=Rotary("half", 8))
    with pytest.raises(ValueError, match="rope width must be even"):
        TiedSpec.from_model(tiny_model(), qk_rope_head_dim=5)


def test_it_has_no_packed_form():
    module = build(tied())
    view = allocate(module.spec.layout(Dtype.F64), 1, 1).view
    assert module.spec.unpacked() is None
    with pytest.raises(TypeError, match="no packed form"):
        module.unpack(view, view, 1)
