"""The shape of a model: fields are checked by name, and missing ones mean what Hugging Face means."""

import pytest

from tests.builders import presets, tiny_model
from variants.contract.model import ModelShape
from variants.contract.rotary import Rotary, Yarn

COUNTS: tuple[str, ...] = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
COUNTS += ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


@pytest.mark.parametrize("field", COUNTS)
@pytest.mark.parametrize("value", [0, -1, 2.5, "32", True])
def test_a17_counts_are_whole_and_positive(field, value):
    with pytest.raises(ValueError, match=rf"model\.{field} must be a whole number >= 1; got {value!r}"):
        tiny_model(**{field: value})


@pytest.mark.parametrize("field", ["query_pre_attn_scalar", "rms_norm_eps", "partial_rotary_factor", "rope_theta"])
@pytest.mark.parametrize("value", [-1.0, "x", True, float("nan")])
def test_numbers_are_positive(field, value):
    with pytest.raises(ValueError, match=rf"model\.{field} must be a"):
        tiny_model(**{field: value})


@pytest.mark.parametrize("field", ["attention_bias", "qk_norm"])
@pytest.mark.parametrize("value", ["no", 1, None])
def test_flags_are_true_or_false(field, value):
    with pytest.raises(ValueError, match=rf"model\.{field} must be true or false; got {value!r}"):
        tiny_model(**{field: value})


@pytest.mark.parametrize("field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "name"])
def test_a17_a_missing_field_is_named(field):
    raw = {"name": "m", "source": "s", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    del raw[field]
    with pytest.raises(ValueError, match=f"^model needs {field}; got "):
        ModelShape.parse(raw)


def test_an_unknown_field_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="model has no field 'n_head'; it has attention_bias, head_dim, "):
        tiny_model(n_head=4)


@pytest.mark.parametrize(("head_dim", "width"), [(32, 32), (None, 16)])
def test_a03_null_head_dim_means_the_quotient(head_dim, width):
    assert tiny_model(head_dim=head_dim).width == width


def test_head_dim_is_needed_where_the_quotient_is_not_whole():
    with pytest.raises(ValueError, match=r"head_dim must be given .* got hidden_size=65, num_attention_heads=4"):
        tiny_model(hidden_size=65)
    assert tiny_model(hidden_size=65, head_dim=16).width == 16


def test_an_mla_model_has_the_width_without_rotation():
    assert tiny_model(qk_nope_head_dim=24, hidden_size=65).width == 24


def test_a16_missing_kv_heads_mean_one_per_query_head():
    assert tiny_model(num_key_value_heads=None).kv_heads == 4
    assert tiny_model().kv_heads == 2


def test_rotary_of_a_model():
    assert tiny_model(rope_theta=5e5).rotary == Rotary("half", 16, 5e5)
    assert tiny_model(partial_rotary_factor=0.25).rotary.width == 4
    scaled = tiny_model(rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})
    assert scaled.rotary.scaling == Yarn(4.0, 64)
    assert tiny_model(rope_style="none").rotary.style == "none"


@pytest.mark.parametrize(
    ("field", "value"), [("rope_style", "spiral"), ("rope_theta", 0.5), ("rope_scaling", {"a": 1})]
)
def test_a_rotation_that_cannot_be_is_an_error_of_the_model(field, value):
    with pytest.raises(ValueError, match="rope"):
        tiny_model(**{field: value})


def test_every_preset_says_where_it_was_read():
    models = presets()
    assert models
    assert all(model.name and model.source for model in models.values())
    assert len({model.name for model in models.values()}) == len(models)
