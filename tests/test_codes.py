"""Codes: what a block's scale is, how far a number can move, and what a whole attention loses by it."""

import pytest
import torch

from tests.builders import SPECS, allocate, as_stored, each_spec, fill, normal, random_entries, textbook
from variants.attention.latent.spec import LatentSpec
from variants.backend.eager import Eager
from variants.codes import decode, encode
from variants.contract.codes import CODES, stored
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.keep import Window
from variants.contract.layout import Stream
from variants.contract.rotary import Rotary
from variants.view import TORCH_DTYPES

each_code = pytest.mark.parametrize("code", CODES, ids=lambda d: d.value)
STEP = {Dtype.INT8: 1 / 254, Dtype.FP8_E4M3: 1 / 16}  # largest error: of the block's largest, of the number itself


def coded(width, code, heads=1):
    """The one stream of codes of a layout."""
    return stored(Stream("key", heads, width, code)).stream("key")


def round_trip(numbers, stream):
    parts = encode(numbers, stream)
    codes = parts["key"].to(TORCH_DTYPES[stream.dtype])
    return codes, parts["key_scale"], decode(codes, parts["key_scale"], stream.quant.block, torch.float64)


def test_int8_by_hand():
    codes, scales, back = round_trip(
        torch.tensor([[254.0, -1.0, 1.1, 0.0], [0.0, 0.0, 0.0, 0.0]]), coded(4, Dtype.INT8)
    )
    assert codes.tolist() == [[127, 0, 1, 0], [0, 0, 0, 0]]  # -0.5 is rounded to even
    assert scales[0].tolist() == [2.0]
    assert back.tolist() == [[254.0, 0.0, 2.0, 0.0], [0.0] * 4]


def test_fp8_has_a_scale_per_128_columns_the_last_block_short():
    numbers = torch.cat([torch.full((128,), 448.0), torch.full((64,), -4.48)])
    codes, scales, back = round_trip(numbers, coded(192, Dtype.FP8_E4M3))
    assert codes.dtype == torch.float8_e4m3fn
    assert codes.float().unique().tolist() == [-448.0, 448.0]
    torch.testing.assert_close(scales, torch.tensor([1.0, 0.01]))
    torch.testing.assert_close(back, numbers.double())


@each_code
@pytest.mark.parametrize("magnitude", [1e-30, 1.0, 1e30])
def test_no_number_moves_further_than_half_a_step(code, magnitude):
    numbers = magnitude * normal(50, 128, dtype=torch.float32)
    _, _, back = round_trip(numbers, coded(128, code))
    largest = numbers.abs().amax(dim=-1, keepdim=True).double()
    of = largest if code is Dtype.INT8 else numbers.abs().double() + largest / 448 * 2**-9 * 16
    assert ((back - numbers).abs() <= STEP[code] * of * (1 + 1e-5)).all()


@each_code
def test_a_nan_spoils_its_block_and_no_other(code):
    numbers = normal(2, 256, dtype=torch.float32)
    numbers[0, 200] = torch.nan
    _, _, back = round_trip(numbers, coded(256, code))
    assert back[0, 128:].isnan().all()
    assert not back[1].isnan().any()
    assert back[0, :128].isnan().any() == (code is Dtype.INT8)  # which has one scale for the whole row


@pytest.mark.parametrize(
    ("name", "code", "per_token"),
    [
        ("mha", Dtype.INT8, 2 * 6 * (16 + 4)),
        ("gqa", Dtype.FP8_E4M3, 2 * 2 * (16 + 4)),
        ("gta", Dtype.INT8, 2 * (16 + 4) + 6 * 2),
        ("gla absorbed", Dtype.FP8_E4M3, 2 * (16 + 4) + 8 * 2),
        ("mla absorbed", Dtype.INT8, 32 + 4 + 8 * 2),
        ("mla expanded", Dtype.INT8, 4 * (24 + 4 + 12 + 4)),
    ],
)
def test_bytes_per_token_count_the_scales(name, code, per_token):
    assert SPECS[name].layout(code).bytes_per_token == per_token


def test_a08_deepseeks_fp8_token_is_656_bytes_as_flashmla_lays_them_out():
    deepseek = LatentSpec(7168, 128, 512, 128, 64, 128, Rotary("none", 0), 192**-0.5)
    layout = deepseek.layout(Dtype.FP8_E4M3)
    (slab,) = layout.slabs()
    assert layout.bytes_per_token == slab.row_bytes == 656
    assert slab.offsets == {"latent": 0, "latent_scale": 512, "rope": 528}
    assert [s.dtype.value for s in layout.streams] == ["fp8_e4m3", "fp32", "bf16"]


@each_spec
@each_code
def test_wide_parts_of_a_row_start_at_16_bytes(spec, code):
    layout = spec.layout(code)
    for slab in layout.slabs():
        wide = [name for name in slab.offsets if layout.stream(name).row_bytes % 16 == 0]
        assert all(slab.offsets[name] % 16 == 0 for name in wide)


def test_scales_are_kept_with_what_they_scale():
    layout = SPECS["gqa window"].layout(Dtype.INT8)
    assert {s.keep for s in layout.streams} == {Window(4)}
    assert [s.name for s in layout.entries] == ["key", "value"]


@each_code
def test_a_span_of_codes_is_read_with_its_own_blocks(code):
    layout = stored(Stream("key", 2, 300, code))
    entries = random_entries(layout, 1, 3)
    view = fill(allocate(layout, 1, 3), entries, [3]).view
    whole = as_stored(entries, layout)["key"].transpose(1, 2)
    for start, stop in ((0, 300), (100, 140), (256, 300), (7, 8)):
        assert torch.equal(view.read(Span("key", start, stop), 3, torch.float64), whole[..., start:stop])


@each_spec
@each_code
def test_an_attention_over_codes_is_off_by_what_they_round(spec, code):
    """Relative error of the output against the same entries uncoded: below 1 % in int8, below 4 % in fp8."""
    read = spec.unpacked() or spec
    layout, geometry, tokens = read.layout(code), read.geometry(), 60
    entries = random_entries(layout, 2, tokens)
    cache = fill(allocate(layout, 2, tokens), entries, [tokens] * 2)
    q = normal(2, 1, geometry.num_q_heads, geometry.d_qk, seed=3)
    window = next((s.keep.size for s in layout.streams if isinstance(s.keep, Window)), None)
    exact, _ = textbook(q, entries, geometry, [tokens] * 2, window)
    o, _ = Eager().plan(geometry, cache.view, tokens).attend(q)
    error = float((o - exact).norm() / exact.norm())
    assert 1e-4 < error < {Dtype.INT8: 0.02, Dtype.FP8_E4M3: 0.06}[code]
