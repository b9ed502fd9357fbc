"""Variants as numbers: from a model, under tensor parallelism, and in weights."""

import pytest

from tests.builders import SPECS, build, config, each_spec, grouped, latent, presets, spec_of, tiny_model
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.contract.dtype import Dtype
from variants.contract.layout import Sharding
from variants.contract.rotary import Rotary

BF16 = Dtype.BF16


def bytes_per_token(spec):
    return spec.layout(BF16).bytes_per_token


@each_spec
def test_weight_elements_are_those_of_the_module(spec):
    assert spec.weight_elements == sum(p.numel() for p in build(spec).parameters())


@each_spec
def test_geometry_fits_what_backends_read(spec):
    read = spec.unpacked() or spec
    read.geometry().check(read.layout(BF16))
    assert read.geometry() == spec.geometry()


@pytest.mark.parametrize("attention", config("attention").values(), ids=config("attention").keys())
@pytest.mark.parametrize("model", presets().values(), ids=presets().keys())
def test_every_attention_fits_every_model(attention, model):
    if model.num_attention_heads % attention.get("num_latent_heads", 1):  # SmolLM2-135M's 9 heads do not halve
        with pytest.raises(
            ValueError, match="num_latent_heads must be at least 1 and divide num_q_heads; got num_q_heads"
        ):
            spec_of(attention, model)
        return
    spec = spec_of(attention, model)
    spec.geometry().check(spec.layout(BF16))
    assert spec.hidden_size == model.hidden_size
    assert spec.geometry().num_q_heads == model.num_attention_heads


@pytest.mark.parametrize(
    ("wanted", "heads", "kv_heads", "expected"),
    [
        (None, 64, 8, 8),  # the model's own grouping
        (None, 32, 32, 8),  # an MHA model: the largest divisor up to 8
        (None, 32, 1, 8),  # an MQA model
        (None, 12, None, 6),
        (None, 9, 9, 3),
        (None, 71, 71, 1),
        (None, 1, 1, 1),
        ("num_attention_heads", 64, 8, 64),
        (1, 64, 8, 1),
        (4, 64, 8, 4),
    ],
)
def test_kv_heads_of_a_grouped_variant(wanted, heads, kv_heads, expected):
    model = tiny_model(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=16)
    assert GroupedSpec.from_model(model, wanted).num_kv_heads == expected


@pytest.mark.parametrize("wanted", [True, "all", 2.0, [1], "8"])
def test_kv_heads_of_another_kind_are_refused(wanted):
    with pytest.raises(ValueError, match=r"num_kv_heads must be a whole number, 'num_attention_heads' or null; got"):
        GroupedSpec.from_model(tiny_model(), wanted)


@pytest.mark.parametrize(("q", "kv"), [(64, 7), (7, 2), (4, 8), (4, 0)])
def test_b09_kv_heads_must_divide(q, kv):
    model = tiny_model(num_attention_heads=q, num_key_value_heads=None, head_dim=16)
    with pytest.raises(ValueError, match=f"got num_q_heads={q}, num_kv_heads={kv}"):
        GroupedSpec.from_model(model, kv)


@pytest.mark.parametrize(
    ("scalar", "head_dim", "scale"),
    [(168, 128, 0.0771517), (144, 128, 0.0833333), (256, 256, 0.0625), (None, 128, 0.0883883)],
    ids=["gemma-3-27b", "gemma-2-27b", "gemma-2-9b", "without"],
)
def test_b25_query_pre_attn_scalar(scalar, head_dim, scale):
    spec = GroupedSpec.from_model(tiny_model(head_dim=head_dim, query_pre_attn_scalar=scalar))
    assert spec.geometry().scale == pytest.approx(scale, abs=1e-6)


def test_head_dim_given_in_a_model_is_used():
    """Qwen3-0.6B: 1024 / 16 = 64, but head_dim is 128; 28 layers, 8 kv heads."""
    model = tiny_model(hidden_size=1024, num_attention_heads=16, num_key_value_heads=8, head_dim=128)
    assert 28 * bytes_per_token(GroupedSpec.from_model(model)) == 114_688


def test_latent_in_a_plain_model_has_deepseeks_ratios():
    spec = LatentSpec.from_model(tiny_model())
    assert (spec.kv_lora_rank, spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim) == (64, 16, 8, 16)
    assert spec.q_lora_rank is None
    assert spec.rotary == Rotary("interleaved", 8)
    assert spec.scale == pytest.approx(24**-0.5)


def test_latent_in_an_mla_model_has_its_sizes():
    spec = LatentSpec.from_model(presets()["deepseek_v3"])
    sizes = (spec.kv_lora_rank, spec.qk_nope_head_dim, spec.qk_rope_head_dim, spec.v_head_dim, spec.q_lora_rank)
    assert sizes == (512, 128, 64, 128, 1536)
    assert spec.weight_elements == 187_107_328  # DeepSeek's checkpoint: q_a, q_b, kv_a, kv_b, o and two norms


def test_latent_overrides_beat_the_model():
    spec = LatentSpec.from_model(presets()["deepseek_v3"], "expanded", 256, 32, 768)
    assert (spec.form, spec.kv_lora_rank, spec.qk_rope_head_dim, spec.q_lora_rank) == ("expanded", 256, 32, 768)
    assert spec.rotary.width == 32


def test_latent_of_a_model_without_rotation():
    assert LatentSpec.from_model(tiny_model(rope_style="none")).rotary.style == "none"


@pytest.mark.parametrize("field", ["kv_lora_rank", "qk_rope_head_dim", "q_lora_rank"])
@pytest.mark.parametrize("value", [0, -8, 2.5, "512", True])
def test_latent_sizes_are_whole_and_positive(field, value):
    with pytest.raises(ValueError, match=f"{field} must be a whole number >= 1; got {value!r}"):
        LatentSpec.from_model(tiny_model(), **{field: value})


@pytest.mark.parametrize("form", ["absorb", "", None])
def test_unknown_form_lists_the_forms(form):
    with pytest.raises(ValueError, match=f"must be one of absorbed, materialized, expanded; got {form!r}"):
        latent(form=form)


def test_rope_must_fit():
    with pytest.raises(ValueError, match="rope width must be qk_rope_head_dim=8; got 6"):
        latent(rope=8, rotary=Rotary("interleaved", 6))
    with pytest.raises(ValueError, match="rope width must be <= head_dim; got 32 > 16"):
        grouped(head_dim=16, rotary=Rotary("half", 32))


def test_a_latent_is_one_replicated_head():
    spec = latent()
    assert all(s.heads == 1 and s.sharding is Sharding.REPLICATED for s in spec.layout(BF16).streams)
    assert all(s.sharding is Sharding.HEADS for s in grouped().layout(BF16).streams)


@pytest.mark.parametrize("tp", [1, 2, 4, 8, 16])
def test_a09_a_latent_is_whole_on_every_rank(tp):
    spec = LatentSpec.from_model(presets()["deepseek_v2_lite"])
    rank = spec.shard(tp)
    assert 27 * bytes_per_token(rank) == 31_104
    assert rank.geometry().num_q_heads == 16 // tp


@pytest.mark.parametrize(("tp", "rank", "total"), [(1, 327_680, 327_680), (8, 40_960, 327_680)])
@pytest.mark.parametrize("name", ["llama3_70b"])
def test_a11_kv_heads_split_while_they_last(name, tp, rank, total):
    self_bytes = 80 * bytes_per_token(GroupedSpec.from_model(presets()[name]).shard(tp))
    assert (self_bytes, tp * self_bytes) == (rank, total)


@pytest.mark.parametrize(("tp", "total"), [(16, 655_360), (32, 1_310_720)])
def test_a11_with_more_ranks_than_kv_heads_each_is_stored_several_times(tp, total):
    rank = GroupedSpec.from_model(presets()["llama3_70b"]).shard(tp)
    assert (rank.num_q_heads, rank.num_kv_heads) == (64 // tp, 1)
    assert 80 * bytes_per_token(rank) == 40_960
    assert tp * 80 * bytes_per_token(rank) == total


def test_a11_two_kv_heads_on_four_ranks():
    assert grouped(8, 2).shard(4).num_kv_heads == 1


@pytest.mark.parametrize(
    ("q", "kv", "tp", "named"),
    [
        (40, 10, 4, "num_kv_heads=10, tp=4"),  # phi-4
        (48, 8, 12, "num_kv_heads=8, tp=12"),
        (32, 8, 12, "num_q_heads=32, tp=12"),  # Llama-3.1-8B
        (71, 1, 8, "num_q_heads=71, tp=8"),  # Falcon-7B
    ],
)
def test_a12_uneven_splits_are_refused_naming_both(q, kv, tp, named):
    with pytest.raises(ValueError, match=f"got {named}"):
        grouped(q, kv).shard(tp)


def test_a12_query_heads_of_a_latent_are_never_split():
    with pytest.raises(ValueError, match="got num_q_heads=4, tp=3"):
        latent(4).shard(3)


@pytest.mark.parametrize("form", ["absorbed", "materialized", "expanded"])
def test_ranks_of_a_latent_keep_form_scale_and_latents(form):
    whole = latent(form=form, q_lora_rank=20)
    rank = whole.shard(2)
    assert (rank.form, rank.scale, rank.kv_lora_rank, rank.q_lora_rank) == (form, whole.scale, 32, 20)
    per_head = 20 * 24 + 32 * (16 + 12) + 12 * 48  # q_b, kv_b and o columns of one query head
    assert whole.weight_elements - rank.weight_elements == 2 * per_head


def test_rank_weights_of_grouped_attention_add_up():
    whole = grouped(8, 4, qkv_bias=True)
    assert 4 * whole.shard(4).weight_elements == whole.weight_elements


@pytest.mark.parametrize("form", ["absorbed", "materialized", "expanded"])
def test_what_each_form_prefills_with_and_unpacks_to(form):
    spec = latent(form=form)
    unpacked = spec.unpacked()
    assert spec.prefilling().form == {"absorbed": "materialized"}.get(form, form)
    assert spec.prefilling().layout(BF16) == spec.layout(BF16)  # over the same cache
    assert (unpacked and unpacked.form) == ("expanded" if form == "materialized" else None)


def test_forms_have_the_same_weights():
    assert len({SPECS[f"mla {form}"].weight_elements for form in ("absorbed", "materialized", "expanded")}) == 1
