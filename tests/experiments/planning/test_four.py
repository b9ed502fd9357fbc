"""The four numbers, the formats they are counted in, and pages."""

from fractions import Fraction

import pytest

from experiments.planning import four
from experiments.planning.formats import FORMATS, parse_format
from experiments.planning.hf.read import read_config
from experiments.planning.paging import paged, pages
from tests.golden.models import MODELS
from variants.contract.keep import All, Every, Window

BF16 = parse_format("bf16")


def golden(name, **changes):
    return read_config({**MODELS[name].config, **changes}, name)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [1, 127, 128, 129, 8192, 131072])
def test_exact_is_never_more_than_reserved(name, tokens):
    model = golden(name)
    assert 0 <= four.exact(model, BF16, tokens) <= four.reserved(model, BF16, tokens)


@pytest.mark.parametrize("name", [n for n in MODELS if not n.startswith("DeepSeek-V4")])
def test_the_marginal_is_the_next_token(name):
    model = golden(name)
    for tokens in (1, 127, 128, 8192, 131072):
        step = four.exact(model, BF16, tokens + 1) - four.exact(model, BF16, tokens)
        assert four.marginal(model, BF16, tokens) == step


def test_the_marginal_of_compressed_entries_is_an_average():
    model = golden("DeepSeek-V4-Pro")
    step = four.exact(model, BF16, 8192 + 128) - four.exact(model, BF16, 8192)
    assert four.marginal(model, BF16, 8192) == Fraction(step, 128)


@pytest.mark.parametrize("name", MODELS)
def test_one_device_of_one_is_the_whole(name):
    model = golden(name)
    rank = four.per_device(model, BF16, 8192, 1)
    assert (rank.bytes, rank.state_bytes) == (four.exact(model, BF16, 8192), four.state_bytes(model))


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_together_hold_at_least_the_whole(tp):
    for name in ("Llama-3.1-70B", "DeepSeek-V3", "gpt-oss-20b", "Qwen3-Next-80B", "DeepSeek-V4-Pro"):
        model = golden(name)
        rank = four.per_device(model, BF16, 8192, tp)
        assert tp * rank.bytes >= four.exact(model, BF16, 8192)
        assert tp * rank.state_bytes >= four.state_bytes(model)


def test_parts_add_up():
    for kv in (BF16, parse_format("int8"), parse_format("int4")):
        model = golden("Llama-3.1-8B")
        assert sum(four.parts(model, kv).values()) == four.rate(model, kv)


@pytest.mark.parametrize(
    ("name", "per_head"), [("fp8", 128), ("int8", 132), ("int4", 72), ("int4_g64", 68), ("fp32", 512)]
)
def test_bytes_of_a_head_of_128_columns(name, per_head):
    assert four.rate(golden("Llama-3.1-8B"), parse_format(name)) == 2 * 32 * 8 * per_head


@pytest.mark.parametrize(
    ("name", "per_layer"), [("fp8", 576), ("fp8_ds_mla", 656), ("int8", 512 + 4 + 128), ("bf16", 1152)]
)
def test_bytes_of_a_latent_of_512_and_64(name, per_layer):
    assert four.rate(golden("DeepSeek-V3"), parse_format(name)) == 61 * per_layer


@pytest.mark.parametrize("name", FORMATS)
def test_formats_can_be_named_as_listed(name):
    assert parse_format(name).name == name


@pytest.mark.parametrize("name", ["foo8", "", "int4_g0", "int4_g", "BF16", None, "int4_g99999"])
def test_an_unknown_format_is_refused_with_the_list(name):
    with pytest.raises(ValueError, match=r"^kv_dtype must be one of bf16, fp16, .*int8.*; got "):
        parse_format(name)


def test_a_packed_latent_needs_a_latent():
    with pytest.raises(ValueError, match="kv_dtype fp8_ds_mla packs an MLA latent; llama keeps none"):
        four.check_format(golden("Llama-3.1-8B"), parse_format("fp8_ds_mla"))


@pytest.mark.parametrize(
    ("keep", "tokens", "count"),
    [
        (All(), 0, 0),
        (All(), 17, 2),
        (Window(32), 17, 2),
        (Window(32), 33, 3),
        (Window(32), 10_000, 3),
        (Window(1), 99, 1),
        (Every(4), 63, 1),
        (Every(4), 128, 2),
    ],
)
def test_pages_of_16(keep, tokens, count):
    assert pages(keep, tokens, 16) == count


def test_layers_that_keep_different_tokens_share_a_pool():
    """Gemma-3-27B: 10 full and 52 sliding layers make groups of 10; the last sliding group is padded."""
    model = golden("Gemma-3-27B")
    found = paged(model, BF16, 8192, 16)
    group_page = 10 * 16 * 2 * 16 * 128 * 2
    assert found.bytes == (512 + 6 * (1 + 1024 // 16)) * group_page
    assert found.rule.startswith("pages of 16 from one pool: 7 groups of 10 layers")


def test_a_layer_of_narrower_entries_puts_more_of_them_into_a_page():
    """MiMo-V2-Flash: 9 full layers of 4 heads, 39 sliding ones of 8; keys of 192 and values of 128 columns."""
    found = paged(golden("MiMo-V2-Flash"), BF16, 8192, 16)
    page = 16 * 8 * (192 + 128) * 2
    assert found.bytes == (8192 // 32 + 5 * (1 + 128 // 16)) * 9 * page
    assert found.rule == f"pages of 16 or 32 from one pool: 6 groups of 9 layers, {page} B per page and layer"


@pytest.mark.parametrize(("full", "sliding", "groups", "size"), [(13, 12, 2, 13), (2, 3, 3, 2), (17, 12, 2, 17)])
def test_groups_are_as_large_as_the_commonest_kind_if_it_is_not_much_commoner(full, sliding, groups, size):
    types = ["full_attention"] * full + ["sliding_attention"] * sliding
    model = golden("gpt-oss-20b", num_hidden_layers=len(types), layer_types=types)
    found = paged(model, BF16, 64, 16)
    assert found.bytes == groups * 4 * size * 16 * 2048
    assert f"{groups} groups of {size} layers" in found.rule


def test_pages_are_padded_where_entries_do_not_divide():
    """DeepSeek-V4: compressed entries of 512 beside ones of 512 + 128 columns."""
    found = paged(golden("DeepSeek-V4-Pro"), BF16, 8192, 16)
    assert found.bytes == (3 * 9 + 2 * 4 + 128) * 30 * 16 * 2 * (512 + 128)


def test_scales_lie_in_pages_and_rows_are_not_padded():
    """Phi-3.5 in int4: a head takes 48 B of codes and 6 B of scales."""
    found = paged(golden("Phi-3.5-mini"), parse_format("int4"), 16, 16)
    assert found.bytes == 16 * 2 * 32 * 32 * (48 + 6)
    indexed = paged(golden("DeepSeek-V3.2"), parse_format("fp8_ds_mla"), 64, 64)
    assert indexed.bytes == 64 * 61 * (656 + 132)
