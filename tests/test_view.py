"""CacheView: typed, strided views of the slabs' own memory; gathering is the only copy, and only through a table."""

from dataclasses import replace

import jaxtyping
import pytest
import torch

from tests.builders import allocate, dense_layout, fill, latent, normal, random_entries
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.layout import CacheLayout, Stream
from variants.view import DTYPES, TORCH_DTYPES, CacheView

MLA = latent().layout(Dtype.BF16)  # latent 32, rope 8 in one row
LATENT, ROPE = Span("latent", 0, 32), Span("rope", 0, 8)


def mla_cache(batch=2, tokens=5, capacity=7):
    entries = random_entries(MLA, batch, tokens)
    return fill(allocate(MLA, batch, capacity), entries, [tokens] * batch), entries


def addresses(view):
    """First and last byte of a tensor's data."""
    last = sum((n - 1) * stride for n, stride in zip(view.shape, view.stride(), strict=True))
    return view.data_ptr(), view.data_ptr() + (last + 1) * view.element_size()


def test_a_stream_is_a_view_head_major():
    cache, entries = mla_cache()
    stream = cache.view.stream("rope")
    assert stream.shape == (2, 1, 7, 8)
    assert stream.dtype == torch.bfloat16
    assert torch.equal(stream[:, :, :5], entries["rope"].transpose(1, 2))


@pytest.mark.parametrize("spans", [[LATENT], [ROPE], [LATENT, ROPE], [Span("latent", 8, 24)]])
def test_views_share_memory(spans):
    cache, _ = mla_cache()
    view = cache.view.joined(spans)
    assert view is not None
    slab = cache.view.slabs[0]
    assert view.untyped_storage().data_ptr() == slab.untyped_storage().data_ptr()
    low, high = addresses(view)
    assert addresses(slab)[0] <= low < high <= addresses(slab)[1]
    view[1, 0, 2, 0] = 7.0
    first = cache.view.span(spans[0])
    assert first[1, 0, 2, 0] == 7.0


def test_keys_of_a_latent_are_the_whole_row_and_values_its_first_columns():
    cache, entries = mla_cache()
    key = cache.view.joined([LATENT, ROPE])
    assert key is not None
    whole = torch.cat([entries["latent"], entries["rope"]], dim=-1).transpose(1, 2)
    assert torch.equal(key[:, :, :5], whole)
    assert key[..., :32].data_ptr() == cache.view.span(LATENT).data_ptr() == key.data_ptr()


def test_spans_in_two_slabs_do_not_join():
    cache = allocate(CacheLayout(MLA.streams), 1, 3)
    assert cache.view.joined([LATENT, ROPE]) is None
    assert cache.view.joined([ROPE]) is not None


def test_gather_without_a_table_is_a_view():
    cache, _ = mla_cache()
    read = cache.view.gather(ROPE, 4)
    assert read.shape == (2, 1, 4, 8)
    assert read.data_ptr() == cache.view.span(ROPE).data_ptr()


def test_gather_follows_the_table_and_survives_missing_pages():
    layout = dense_layout(2, 4, 4, Dtype.F64)
    slots = normal(3, 2, 2, 4)  # three pages of two slots
    slab = slots.view(torch.uint8).reshape(3, 2, 2, 32)
    table = torch.tensor([[2, 0], [1, -1]], dtype=torch.int32)
    view = CacheView(layout, (slab, slab), torch.tensor([4, 2], dtype=torch.int32), table)
    read = view.gather(Span("key", 1, 3), 3)
    assert torch.equal(read[0], torch.cat([slots[2], slots[0]], dim=1)[:, :3, 1:3])
    assert torch.equal(read[1, :, :2], slots[1, :, :, 1:3])


def test_fp8_and_int8_rows_are_read_as_such():
    layout = CacheLayout((Stream("a", 1, 16, Dtype.FP8_E4M3), Stream("b", 1, 8, Dtype.BF16)), rows=(("a", "b"),))
    cache = allocate(layout, 1, 2)
    assert cache.view.stream("a").dtype == torch.float8_e4m3fn
    assert cache.view.stream("b").stride(2) == 32 // 2


def test_every_torch_dtype_has_as_many_bits_as_ours():
    assert all(torch_dtype.itemsize * 8 == dtype.bits for dtype, torch_dtype in TORCH_DTYPES.items())
    assert {DTYPES[torch_dtype]: torch_dtype for torch_dtype in DTYPES} == TORCH_DTYPES


def test_shapes_are_checked_in_tests():
    """The import hook of pyproject's ``--jaxtyping-packages`` is at work: without it these two would pass."""
    cache, _ = mla_cache()
    with pytest.raises(jaxtyping.TypeCheckError):
        replace(cache.view, lengths=cache.view.lengths.long())
    with pytest.raises(jaxtyping.TypeCheckError):
        cache.truncate(torch.zeros(2, 2, dtype=torch.int32))
