"""How a layout is read back as keys and values."""

import math

import pytest

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry, Run, Span, check_tp, one_run
from variants.contract.layout import CacheLayout, Stream

KEY, VALUE = Span("key", 0, 8), Span("value", 0, 8)
LATENT, ROPE = Span("latent", 0, 512), Span("rope", 0, 64)
MLA = CacheLayout((Stream("latent", 1, 512, Dtype.BF16), Stream("rope", 1, 64, Dtype.BF16)), rows=(("latent", "rope"),))


@pytest.mark.parametrize(("q", "kv"), [(7, 2), (4, 8), (4, 0), (64, 7), (0, 1), (4, -2)])
def test_b09_heads_must_divide_and_both_are_named(q, kv):
    with pytest.raises(ValueError, match=f"divide num_q_heads; got num_q_heads={q}, num_kv_heads={kv}"):
        AttentionGeometry(q, kv, (KEY,), (VALUE,), 1.0)


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_scale_is_a_positive_number(scale):
    with pytest.raises(ValueError, match="scale must be a positive number"):
        AttentionGeometry(4, 2, (KEY,), (VALUE,), scale)


def test_scale_has_no_default():
    with pytest.raises(TypeError, match="scale"):
        AttentionGeometry(4, 2, (KEY,), (VALUE,))  # type: ignore[call-arg]


@pytest.mark.parametrize(("key", "value"), [((), (VALUE,)), ((KEY,), ())])
def test_keys_and_values_are_needed(key, value):
    with pytest.raises(ValueError, match="at least one key span and one value span"):
        AttentionGeometry(4, 2, key, value, 1.0)


@pytest.mark.parametrize(("start", "stop"), [(0, 0), (4, 2), (-1, 3)])
def test_spans_run_forward(start, stop):
    with pytest.raises(ValueError, match=f"0 <= start < stop; got .{start}, {stop}"):
        Span("key", start, stop)


def test_widths_and_group():
    absorbed = AttentionGeometry(128, 1, (LATENT, ROPE), (LATENT,), 0.07)
    assert (absorbed.d_qk, absorbed.d_v, absorbed.group_size) == (576, 512, 128)
    assert absorbed.streams == ("latent", "rope")


@pytest.mark.parametrize(
    ("key", "value", "shared"),
    [
        ((LATENT, ROPE), (LATENT,), True),
        ((Span("tied", 0, 64), ROPE), (Span("tied", 0, 128),), False),  # GTA: half of V is no key
        ((Span("tied", 0, 128), ROPE), (Span("tied", 64, 128),), True),
        ((KEY,), (VALUE,), False),
        ((LATENT, ROPE), (LATENT, Span("rope", 32, 64)), True),
        ((Span("latent", 0, 256), ROPE), (LATENT,), False),
        ((LATENT, ROPE), (LATENT, VALUE), False),
    ],
)
def test_state_is_shared_where_every_value_column_is_a_key_column(key, value, shared):
    assert AttentionGeometry(8, 1, key, value, 1.0).shares_state is shared


def test_check_wants_streams_wide_enough_with_one_or_all_heads():
    layout = CacheLayout((Stream("key", 2, 8, Dtype.BF16), Stream("value", 4, 8, Dtype.BF16)))
    with pytest.raises(ValueError, match="must end within stream width 8"):
        AttentionGeometry(4, 2, (Span("key", 0, 9),), (KEY,), 1.0).check(layout)
    with pytest.raises(ValueError, match="'value' must have 1 or num_kv_heads=2 heads; got 4"):
        AttentionGeometry(4, 2, (KEY,), (VALUE,), 1.0).check(layout)
    with pytest.raises(KeyError, match="no stream 'rope'"):
        AttentionGeometry(4, 2, (KEY, ROPE), (KEY,), 1.0).check(layout)
    AttentionGeometry(4, 2, (KEY,), (KEY,), 1.0).check(layout)


def test_a_one_head_stream_may_serve_many_kv_heads():
    layout = CacheLayout((Stream("tied", 8, 128, Dtype.BF16), Stream("rope", 1, 64, Dtype.BF16)))
    AttentionGeometry(128, 8, (Span("tied", 0, 64), ROPE), (Span("tied", 0, 128),), 1.0).check(layout)


@pytest.mark.parametrize(
    ("spans", "run"),
    [
        ((LATENT, ROPE), Run(0, 0, 1152, Dtype.BF16)),
        ((LATENT,), Run(0, 0, 1024, Dtype.BF16)),
        ((ROPE,), Run(0, 1024, 1152, Dtype.BF16)),
        ((Span("latent", 8, 16),), Run(0, 16, 32, Dtype.BF16)),
        ((Span("latent", 0, 8), Span("latent", 8, 16)), Run(0, 0, 32, Dtype.BF16)),
        ((ROPE, LATENT), None),  # the other order
        ((Span("latent", 0, 256), ROPE), None),  # a gap
        ((LATENT, LATENT), None),
    ],
)
def test_one_run(spans, run):
    assert one_run(MLA, spans) == run


def test_no_run_across_slabs_dtypes_or_padding():
    apart = CacheLayout(MLA.streams)
    assert one_run(apart, (LATENT, ROPE)) is None
    assert one_run(apart, (ROPE,)) == Run(1, 0, 128, Dtype.BF16)
    mixed = CacheLayout((Stream("latent", 1, 512, Dtype.F16), MLA.streams[1]), rows=MLA.rows)
    assert one_run(mixed, (LATENT, ROPE)) is None
    padded = CacheLayout((Stream("a", 1, 1, Dtype.BF16), Stream("b", 1, 1, Dtype.F32)), rows=(("a", "b"),))
    assert one_run(padded, (Span("a", 0, 1), Span("b", 0, 1))) is None


def test_unknown_stream_has_no_run():
    with pytest.raises(KeyError, match="no stream 'nope'"):
        one_run(MLA, (Span("nope", 0, 1),))


@pytest.mark.parametrize(("heads", "tp"), [(71, 8), (32, 12), (8, 0), (8, -2)])
def test_a12_query_heads_are_never_split(heads, tp):
    with pytest.raises(
        ValueError, match=f"tp must be at least 1 and divide num_q_heads; got num_q_heads={heads}, tp={tp}"
    ):
        check_tp(heads, tp)
