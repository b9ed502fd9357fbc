"""Other kv heads: repeating loses nothing, averaging is the mean of weights."""

import pytest
import torch

from tests.builders import STORAGES, build, each_storage, grouped, normal
from tests.convert.layers import SOURCES, decoded
from variants.contract.dtype import Dtype
from variants.convert import convert, with_kv_heads

NORMED = grouped(6, 2, qk_norm=True, qkv_bias=True, output_bias=True)


@each_storage
@pytest.mark.parametrize("spec", [*SOURCES.values(), NORMED], ids=[*SOURCES, "qwen3: normed"])
def test_repeated_heads_answer_alike_on_every_storage(spec, storage):
    layer, x = build(spec), normal(2, 11, 48)
    mha, told = convert(layer, with_kv_heads(spec, spec.num_q_heads), x)
    expected = layer.reference(x)
    assert (told.method, told.exact) == ("repeat", True)
    assert told.error is not None
    assert told.error < 1e-14
    torch.testing.assert_close(mha.reference(x), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(decoded(mha, x, storage), expected, rtol=0, atol=1e-10)
    group = spec.num_q_heads // spec.num_kv_heads
    assert told.bytes_per_token_after == group * told.bytes_per_token_before
    assert told.bytes_per_token_before == 2 * spec.num_kv_heads * 16 * 8
    held, more = (STORAGES["contiguous"].allocated_bytes(s.layout(Dtype.BF16), 3, 50) for s in (spec, mha.spec))
    assert more == group * held


def test_heads_are_repeated_part_of_the_way():
    layer, x = build(grouped(12, 2)), normal(1, 9, 48)
    more, told = convert(layer, with_kv_heads(layer.spec, 6))
    assert told.exact
    torch.testing.assert_close(more.reference(x), layer.reference(x), rtol=0, atol=1e-12)
    for head, old in enumerate([0, 0, 0, 1, 1, 1]):
        own, was = more.k_proj.weight[head * 16 : head * 16 + 16], layer.k_proj.weight[old * 16 : old * 16 + 16]
        assert torch.equal(own, was)


@pytest.mark.parametrize(("before", "after"), [(6, 1), (6, 2), (6, 3), (3, 1), (2, 1)])
def test_averaged_heads_are_the_mean_of_their_group(before, after):
    layer = build(grouped(6, before, qkv_bias=True, qk_norm=True))
    fewer, told = convert(layer, with_kv_heads(layer.spec, after), normal(1, 5, 48))
    group = before // after
    for ours, old in ((fewer.k_proj, layer.k_proj), (fewer.v_proj, layer.v_proj)):
        for g in range(after):
            mean = sum(old.weight[(g * group + i) * 16 :][:16] for i in range(group)) / group
            bias = sum(old.bias[(g * group + i) * 16 :][:16] for i in range(group)) / group
            torch.testing.assert_close(ours.weight[g * 16 : g * 16 + 16], mean, rtol=0, atol=1e-15)
            torch.testing.assert_close(ours.bias[g * 16 : g * 16 + 16], bias, rtol=0, atol=1e-15)
    for name in ("q_proj.weight", "q_proj.bias", "o_proj.weight", "q_norm.weight", "k_norm.weight"):
        assert torch.equal(fewer.get_parameter(name), layer.get_parameter(name))
    assert (told.method, told.exact, fewer.spec.num_kv_heads) == ("mean_pool", False, after)
    assert told.error is not None
    assert told.error > 0.1
    assert told.bytes_per_token_after * group == told.bytes_per_token_before


def test_equal_heads_are_averaged_without_loss():
    """Averaging undoes repeating."""
    layer, x = build(grouped(6, 2, qkv_bias=True)), normal(1, 9, 48)
    mha, _ = convert(layer, with_kv_heads(layer.spec, 6))
    back, _ = convert(mha, layer.spec, x)
    torch.testing.assert_close(back.reference(x), layer.reference(x), rtol=0, atol=1e-12)


def test_a_window_is_kept():
    layer, x = build(grouped(window=4)), normal(2, 11, 48)
    mha, _ = convert(layer, with_kv_heads(layer.spec, 6))
    assert mha.spec.window == 4
    torch.testing.assert_close(decoded(mha, x, STORAGES["ring"]), layer.reference(x), rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtype_stays_and_nothing_is_shared(dtype):
    layer = build(grouped(), dtype)
    mha, _ = convert(layer, with_kv_heads(layer.spec, 6))
    assert {p.dtype for p in mha.parameters()} == {dtype}
    ours, theirs = ({p.data_ptr() for p in module.parameters()} for module in (mha, layer))
    assert not ours & theirs
