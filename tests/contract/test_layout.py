"""What a token leaves behind, in bytes: element types, which tokens are kept, and how streams lie in rows."""

import dataclasses
from fractions import Fraction
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from variants.contract.dtype import Dtype
from variants.contract.keep import All, Every, Fixed, Window
from variants.contract.layout import ROW_ALIGNMENT, CacheLayout, Quant, Stream


@pytest.mark.parametrize(
    ("name", "dtype", "bits"),
    [
        ("fp64", Dtype.F64, 64),
        ("float32", Dtype.F32, 32),
        ("fp16", Dtype.F16, 16),
        ("bfloat16", Dtype.BF16, 16),
        ("bf16", Dtype.BF16, 16),
        ("float8_e4m3fn", Dtype.FP8_E4M3, 8),
        ("int8", Dtype.INT8, 8),
        ("int4", Dtype.INT4, 4),
    ],
)
def test_dtype_names_and_bits(name, dtype, bits):
    assert Dtype.parse(name) is dtype
    assert dtype.bits == bits


def test_codes_pack_into_whole_bytes():
    assert [Dtype.INT4.bytes(n) for n in (0, 1, 2, 5)] == [0, 1, 1, 3]
    assert Dtype.BF16.bytes(5) == 10


def test_only_integers_are_codes():
    assert [d for d in Dtype if not d.is_float] == [Dtype.INT8, Dtype.INT4]


@pytest.mark.parametrize("name", ["foo8", "", None, 16, "BF16"])
def test_a08_unknown_dtype_lists_the_known_ones(name):
    known = "fp64, fp32, fp16, bf16, fp8_e4m3, int8, int4"
    with pytest.raises(ValueError, match=f"must be one of {known}; got {name!r}"):
        Dtype.parse(name)


@pytest.mark.parametrize(
    ("keep", "rate", "entries"),
    [
        (All(), 1, {0: 0, 1: 1, 129: 129}),
        (Window(128), 1, {0: 0, 127: 127, 128: 128, 129: 128, 10**6: 128}),
        (Every(4), Fraction(1, 4), {0: 0, 3: 0, 4: 1, 7: 1, 8: 2, 11: 2}),
        (Every(1), 1, {5: 5}),
        (Fixed(3), 0, {0: 0, 1: 3, 10**6: 3}),
    ],
)
def test_what_is_kept(keep, rate, entries):
    assert keep.rate == rate
    assert {tokens: keep.entries(tokens) for tokens in entries} == entries


@pytest.mark.parametrize(
    "make", [Window, Every, Fixed, partial(Quant, "scale")], ids=["window", "every", "fixed", "quant"]
)
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "4", None])
def test_sizes_of_keeps_and_blocks_are_whole_and_positive(make, size):
    with pytest.raises(ValueError, match=f"must be a whole number >= 1; got {size!r}"):
        make(size)


@pytest.mark.parametrize("field", ["heads", "width"])
@pytest.mark.parametrize("size", [0, -8, 2.0, True, "8"])
def test_stream_sizes_are_whole_and_positive(field, size):
    with pytest.raises(ValueError, match=f"stream 'key': {field} must be a whole number >= 1; got {size!r}"):
        Stream(**{"name": "key", "heads": 1, "width": 8, "dtype": Dtype.BF16, field: size})


@pytest.mark.parametrize("dtype", [Dtype.INT8, Dtype.INT4])
def test_codes_need_scales(dtype):
    with pytest.raises(ValueError, match=f"'key' of {dtype.value} codes needs quant="):
        CacheLayout((Stream("key", 1, 8, dtype),))


def test_quantisation_axis_is_known():
    with pytest.raises(ValueError, match=r"Quant\.axis must be 'width' or 'tokens'; got 'heads'"):
        Quant("scale", 1, axis="heads")


A, B = Stream("a", 2, 8, Dtype.BF16), Stream("b", 2, 4, Dtype.F32)


@pytest.mark.parametrize(
    ("streams", "rows", "message"),
    [
        ((), (), r"needs streams with distinct names; got \[\]"),
        ((A, A), (), r"needs streams with distinct names; got \['a', 'a'\]"),
        ((A,), (("a", "c"),), r"must name each stream at most once, from \['a'\]; got \['a', 'c'\]"),
        ((A, B), (("a", "b"), ("a",)), r"must name each stream at most once, from \['a', 'b'\]"),
        ((A, B), (("a", "a"),), "must name each stream at most once"),
        ((Stream("a", 2, 8, Dtype.INT8, quant=Quant("s", 8)),), (), r"from \['a'\]; got \['s'\]"),
        ((A, Stream("b", 1, 4, Dtype.F32)), (("a", "b"),), "must have equal heads and keep"),
        ((A, Stream("b", 2, 4, Dtype.F32, Window(4))), (("a", "b"),), "must have equal heads and keep"),
    ],
)
def test_impossible_layouts_raise(streams, rows, message):
    with pytest.raises(ValueError, match=message):
        CacheLayout(streams, rows)


def test_unknown_stream_and_negative_tokens():
    with pytest.raises(KeyError, match=r"no stream 'c'; this layout has \['a', 'b'\]"):
        CacheLayout((A, B)).stream("c")
    with pytest.raises(ValueError, match="tokens must be >= 0; got -1"):
        CacheLayout((A, B)).bytes(-1)


@pytest.mark.parametrize("thing", [A, CacheLayout((A,)), CacheLayout((A,)).slabs()[0], Window(4), Quant("s", 1)])
def test_the_vocabulary_is_frozen_and_hashable(thing):
    field = dataclasses.fields(thing)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(thing, field, getattr(thing, field))
    assert hash(thing) == hash(dataclasses.replace(thing))


def test_bytes_are_one_sum_over_streams():
    layout = CacheLayout(
        (
            Stream("key", 8, 64, Dtype.BF16, Window(128)),  # 1024 B an entry
            Stream("compressed", 1, 512, Dtype.BF16, Every(4)),  # 1024
            Stream("state", 4, 16, Dtype.F32, Fixed(2)),  # 256
        )
    )
    assert layout.bytes(0) == 0
    assert layout.bytes(1) == 1024 + 0 + 512
    assert layout.bytes(131) == 128 * 1024 + 32 * 1024 + 512
    assert layout.bytes_per_token == 1024 + 256


def test_a20_windowed_layers_do_not_grow_linearly():
    """gpt-oss-120b: 18 full layers and 18 with a window of 128; 8 kv heads of 64, bf16."""

    def layer(keep):
        return CacheLayout(tuple(Stream(n, 8, 64, Dtype.BF16, keep) for n in ("key", "value")))

    model = {t: 18 * layer(All()).bytes(t) + 18 * layer(Window(128)).bytes(t) for t in (1, 127, 128, 129, 131_072)}
    assert model == {1: 73_728, 127: 9_363_456, 128: 9_437_184, 129: 9_474_048, 131_072: 4_836_556_800}


def test_a30_scales_count():
    codes = Stream("key", 8, 128, Dtype.INT8, quant=Quant("scale", 128))
    layout = CacheLayout((codes, Stream("scale", 8, 1, Dtype.F32)))
    assert 2 * 28 * layout.bytes(500 * 256) == 7_569_408_000  # against 14_680_064_000 in fp16


def fp8_mla():
    return CacheLayout(
        (
            Stream("latent", 1, 512, Dtype.FP8_E4M3, quant=Quant("scale", 128)),
            Stream("scale", 1, 4, Dtype.F32),
            Stream("rope", 1, 64, Dtype.BF16),
        ),
        rows=(("latent", "scale", "rope"),),
    )


def test_mla_row_holds_latent_then_rope():
    layout = CacheLayout(
        (Stream("latent", 1, 512, Dtype.BF16), Stream("rope", 1, 64, Dtype.BF16)), rows=(("latent", "rope"),)
    )
    (slab,) = layout.slabs()
    assert (slab.heads, slab.row_bytes, slab.offsets) == (1, 1152, {"latent": 0, "rope": 1024})
    assert slab.bytes(4096) == 4_718_592


def test_a08_fp8_mla_row_is_656_bytes():
    (slab,) = fp8_mla().slabs()
    assert slab.offsets == {"latent": 0, "scale": 512, "rope": 528}
    assert slab.row_bytes == fp8_mla().bytes_per_token == 656
    assert 61 * fp8_mla().bytes(1) == 40_016


def test_padding_is_allocated_but_not_logical():
    layout = CacheLayout((Stream("key", 3, 5, Dtype.BF16),))  # 10 B rows lie 16 B apart
    (slab,) = layout.slabs()
    assert (layout.bytes(7), slab.bytes(7)) == (7 * 3 * 10, 7 * 3 * 16)


def test_a_typed_view_starts_aligned():
    layout = CacheLayout((Stream("a", 1, 3, Dtype.FP8_E4M3), Stream("b", 1, 2, Dtype.F64)), rows=(("a", "b"),))
    (slab,) = layout.slabs()
    assert (slab.offsets, slab.row_bytes) == ({"a": 0, "b": 8}, 32)


def test_streams_in_no_group_get_slabs_of_their_own_in_stream_order():
    tied, rope = Stream("tied", 8, 128, Dtype.BF16), Stream("rope", 1, 64, Dtype.BF16)
    slabs = CacheLayout((tied, rope)).slabs()
    assert [(s.name, s.heads, s.row_bytes) for s in slabs] == [("tied", 8, 256), ("rope", 1, 128)]


streams = st.builds(
    Stream,
    name=st.uuids().map(str),
    heads=st.just(2),
    width=st.integers(1, 40),
    dtype=st.sampled_from([d for d in Dtype if d.is_float]),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(streams, min_size=1, max_size=4, unique_by=lambda s: s.name), st.integers(0, 300))
def test_rows_hold_their_streams_aligned_and_apart(members, tokens):
    layout = CacheLayout(tuple(members), rows=(tuple(s.name for s in members),))
    (slab,) = layout.slabs()
    runs = sorted((slab.offsets[s.name], slab.offsets[s.name] + s.row_bytes) for s in members)
    assert all(start % (s.dtype.bits // 8) == 0 for s in members for start in [slab.offsets[s.name]])
    assert all(before[1] <= after[0] for before, after in pairwise(runs))
    assert slab.row_bytes % ROW_ALIGNMENT == 0
    assert runs[-1][1] <= slab.row_bytes
    assert layout.bytes(tokens) <= slab.bytes(tokens)
