"""Public bug reports on cache sizes (CASES.md, section a, and E19), one test per case, through the planner.

A08, A20, A28 and A30 also have tests beside the layouts, storages and kernels that hold these bytes.
"""

import csv
import json

import pytest

from experiments.cache import cache
from experiments.planning import four
from experiments.planning.formats import parse_format
from experiments.planning.hf.fields import Unreadable
from experiments.planning.hf.read import read_config
from experiments.planning.paging import page_bytes, paged
from tests.builders import grouped, latent
from tests.golden.models import MODELS
from variants.contract.dtype import Dtype
from variants.contract.keep import All
from variants.contract.layout import Source
from variants.contract.rotary import Rotary

BF16, FP8, FP8_MLA, INT8, FP32 = map(parse_format, ("bf16", "fp8", "fp8_ds_mla", "int8", "fp32"))
GIB = 2**30


def golden(name, form="latent", **changes):
    config = MODELS[name].config
    return read_config({**config, **changes}, name, form)


def plain(layers, heads, kv, head_dim=None, model_type="llama", hidden=None, **more):
    sizes = {"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv}
    width = {} if head_dim is None else {"head_dim": head_dim}
    return read_config(
        {"model_type": model_type, "hidden_size": hidden or 64 * heads, **sizes, **width, **more}, "case"
    )


def per_token(model, kv=BF16):
    return four.rate(model, kv)


def per_rank(model, tp, kv=BF16):
    return four.per_device(model, kv, 1, tp)


def test_a01_head_dim_of_the_file_counts():
    model = plain(36, 32, 8, 128, hidden=2560)
    assert per_token(model) == 147_456
    assert four.exact(model, BF16, 32768) == 4_831_838_208 == 4.5 * GIB
    assert "head_dim=128 from config head_dim" in model.sources
    assert per_token(golden("Qwen3-0.6B")) == 114_688


@pytest.mark.parametrize(("stated", "total"), [({"head_dim": 32}, 4096), ({"head_dim": None}, 2048), ({}, 2048)])
def test_a03_null_or_missing_head_dim_is_the_quotient(stated, total):
    model = plain(1, 4, 2, hidden=64, **stated)
    assert four.exact(model, FP32, 8) == total


@pytest.mark.parametrize("wrong", [0, -1, 32.5, "32", True])
def test_a03_an_impossible_head_dim_is_refused(wrong):
    with pytest.raises(Unreadable, match=r"^head_dim must be a whole number from 1 to \d+; got "):
        plain(1, 4, 2, hidden=64, head_dim=wrong)


def test_a05_mla_is_one_latent_and_the_indexer_stands_apart():
    assert per_token(golden("DeepSeek-V3")) == 70_272
    parts = four.parts(golden("DeepSeek-V3.2"), BF16)
    assert parts["latent"] + parts["rope"] == 70_272
    assert parts["index"] == 15_616


def test_a06_mla_has_no_factor_two_and_keeps_the_rotary_key():
    model = golden("DeepSeek-V3")
    assert four.parts(model, BF16) == {"latent": 62_464, "rope": 7_808}
    assert four.exact(model, BF16, 4096) == 287_834_112


def test_a08_packed_fp8_has_its_own_width():
    assert per_token(golden("DeepSeek-V3"), FP8_MLA) == 40_016
    with pytest.raises(ValueError, match=r"^kv_dtype must be one of bf16, .*fp8_ds_mla.*; got 'foo8'$"):
        parse_format("foo8")
    flash = golden("DeepSeek-V4-Flash")
    assert flash.kind == "compressed+SWA"
    assert per_token(flash) == 6_880


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_a09_a_latent_is_on_every_rank(tp):
    rank = per_rank(golden("DeepSeek-V2-Lite"), tp)
    assert (rank.bytes, rank.mode) == (31_104, "replicated")


@pytest.mark.parametrize(("tp", "rank"), [(1, 327_680), (8, 40_960), (16, 40_960), (32, 40_960)])
def test_a11_no_rank_has_less_than_a_head(tp, rank):
    found = per_rank(golden("Llama-3.1-70B"), tp)
    assert found.bytes == rank
    assert found.mode == ("sharded" if tp <= 8 else "replicated")


def test_a11_two_kv_heads_on_four_ranks():
    found = per_rank(plain(1, 4, 2, 16), 4)
    assert (found.bytes, found.mode) == (2 * 16 * 2, "replicated")


def test_a12_what_does_not_divide_is_padded_and_says_so():
    phi4 = plain(40, 40, 10, 128)
    assert per_rank(phi4, 4).bytes == 40 * 2 * 3 * 128 * 2
    assert per_rank(phi4, 4).mode == "padded"


@pytest.mark.parametrize(
    ("name", "tp", "heads"),
    [("Llama-3.1-8B", 12, "num_q_heads=32, num_kv_heads=8"), ("Falcon-7B", 8, "num_q_heads=71")],
)
def test_a12_query_heads_that_do_not_divide_are_refused(name, tp, heads):
    with pytest.raises(ValueError, match=rf"^tp must divide num_q_heads; got {heads}.*, tp={tp}$"):
        per_rank(golden(name), tp)


def test_a14_multi_query_wins_over_what_stands_beside_it():
    legacy = {"n_head": 71, "n_layer": 32, "hidden_size": 4544, "multi_query": True}
    assert per_token(golden("Falcon-7B")) == 8_192
    assert per_token(golden("Falcon-7B", num_kv_heads=71)) == 8_192
    assert per_token(read_config({"model_type": "RefinedWebModel", **legacy}, "legacy")) == 8_192
    assert per_token(golden("Falcon-40B")) == 122_880


@pytest.mark.parametrize(("flag", "total"), [(True, 100_663_296), (False, 1_610_612_736)])
def test_a15_old_names_and_the_flag(flag, total):
    bigcode = {"model_type": "gpt_bigcode", "n_layer": 24, "n_head": 16, "n_embd": 2048, "multi_query": flag}
    assert four.exact(read_config(bigcode, "santa"), parse_format("fp16"), 8192) == total
    assert four.exact(golden("GPT-2"), parse_format("fp16"), 8192) == 301_989_888


def test_a16_null_or_missing_kv_heads_are_mha_with_a_note():
    phi = golden("Phi-2")
    qwen = {"model_type": "qwen", "num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 2048}
    model = read_config({**qwen, "kv_channels": 128}, "Qwen-1.8B")
    assert (per_token(phi), per_token(model)) == (327_680, 196_608)
    assert any("assumed MHA" in note for note in phi.notes)
    assert any("assumed MHA" in note for note in model.notes)


DEGENERATE = {
    "zero heads": (
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 0}',
        "num_attention_heads",
    ),
    "text heads": (
        '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": "32"}',
        "num_attention_heads",
    ),
    "empty": ("{}", "model_type"),
    "a list": ("[1]", "object"),
    "type only": ('{"model_type": "llama"}', "num_hidden_layers"),
    "no JSON": ("{", "JSON"),
}


@pytest.mark.parametrize(("content", "named"), DEGENERATE.values(), ids=DEGENERATE)
def test_a17_degenerate_files_are_one_line(content, named, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=named) as refused:
        cache([f"config={file}"])
    assert "\n" not in str(refused.value)
    assert "config.json" in str(refused.value)


def test_a18_sliding_layers_count_from_the_first_token():
    model = golden("gpt-oss-20b", num_hidden_layers=36, layer_types=["sliding_attention", "full_attention"] * 18)
    assert four.exact(model, BF16, 1) == 73_728


def test_a19_two_right_answers_with_names():
    model = golden("gpt-oss-20b")
    assert 32 * four.exact(model, BF16, 8192) == 6_543_114_240
    assert 32 * four.reserved(model, BF16, 8192) == 12_884_901_888 == 12 * GIB


@pytest.mark.parametrize(
    ("tokens", "total"), [(127, 9_363_456), (128, 9_437_184), (129, 9_474_048), (131072, 4_836_556_800)]
)
def test_a20_growth_bends(tokens, total):
    model = golden("gpt-oss-20b", num_hidden_layers=36, layer_types=["sliding_attention", "full_attention"] * 18)
    assert four.exact(model, BF16, tokens) == total


GEMMA4 = {
    "model_type": "gemma4_text",
    "hidden_size": 5376,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_attention_heads": 32,
}


def test_a21_two_layer_types_with_different_shapes():
    config = {**GEMMA4, "num_hidden_layers": 60, "num_key_value_heads": 16, "sliding_window": 1024}
    model = read_config({**config, "attention_k_eq_v": True, "num_global_key_value_heads": 4}, "Gemma-4-31B")
    assert per_token(model) == 901_120
    widest = max(layer.streams[0].heads for layer in model.layers) * max(
        layer.streams[0].width for layer in model.layers
    )
    assert round(60 * 2 * widest * 2 / 901_120, 2) == 2.18


def test_a23_kv_heads_per_layer():
    assert per_token(golden("OpenELM-3B")) == 83_968
    kv = [3] * 5 + [4] * 7 + [5] * 4
    small = {"num_transformer_layers": 16, "head_dim": 64, "num_kv_heads": kv, "num_query_heads": [4 * g for g in kv]}
    assert per_token(golden("OpenELM-3B", **small)) == 16_128
    with pytest.raises(Unreadable, match="num_query_heads must have one entry per layer; got 16 entries"):
        golden("OpenELM-3B", **{**small, "num_transformer_layers": 17})


@pytest.mark.parametrize(("shared", "total"), [(20, 18_432), (0, 43_008)])
def test_a25_layers_that_share_keep_nothing(shared, total):
    pattern = [*["sliding_attention"] * 4, "full_attention"] * 7
    config = {
        **GEMMA4,
        "num_hidden_layers": 35,
        "num_key_value_heads": 1,
        "sliding_window": 512,
        "layer_types": pattern,
    }
    model = read_config({**config, "num_attention_heads": 8, "num_kv_shared_layers": shared}, "Gemma-4-2B")
    assert per_token(model) == total


def test_a27_values_narrower_than_keys():
    model = golden("MiMo-V2-Flash")
    assert per_token(model) == 222_720
    assert four.exact(model, BF16, 32768) == 780_533_760


@pytest.mark.parametrize(("tokens", "slots"), [(0, 0), (1, 16), (16, 16), (17, 32), (400, 400)])
def test_a28_pages_are_rounded_up(tokens, slots):
    opt = plain(12, 12, 12, 64, "opt")
    assert paged(opt, BF16, tokens, 16).bytes == slots * 36_864
    assert four.exact(opt, BF16, tokens) == tokens * 36_864


def test_a30_scales_count():
    model = plain(28, 16, 8, 128)
    tokens = 500 * 256
    assert four.exact(model, parse_format("fp16"), tokens) == 14_680_064_000
    assert four.exact(model, INT8, tokens) == 7_569_408_000
    parts = four.parts(model, INT8)
    assert tokens * (parts["key"] + parts["value"]) == 7_340_032_000
    assert tokens * (parts["key_scale"] + parts["value_scale"]) == 229_376_000


def test_a32_a_page_of_all_layers():
    model = golden("Qwen3-0.6B")
    assert page_bytes(model, BF16, 16) == 1_835_008 == 28 * 65_536
    assert GIB // page_bytes(model, BF16, 16) == 585


def test_a33_no_extra_head_factor():
    assert per_token(golden("Llama-2-7B")) == 524_288
    assert per_token(golden("Llama-3.1-8B")) == 131_072


def test_a34_units_are_what_they_say(tmp_path, capsys):
    file, out = tmp_path / "config.json", tmp_path / "table.csv"
    file.write_text(json.dumps(MODELS["Llama-2-7B"].config))
    assert cache([f"config={file}", "tokens=4096", f"out={out}"]) == 0
    printed = capsys.readouterr().out.split()
    (row,) = csv.DictReader(out.read_text().splitlines())
    assert (row["total_bytes"], row["total_gb"], row["total_gib"]) == ("2147483648", "2.147", "2.0")
    assert {"2147483648", "2.147", "2.000"} <= set(printed)


def test_a37_the_text_part_counts_and_nothing_else():
    gemma = golden("Gemma-3-27B")
    assert "num_hidden_layers=62 from config text_config.num_hidden_layers" in gemma.sources
    twelve = {**MODELS["Gemma-3-27B"].config["text_config"], "num_hidden_layers": 48, "num_attention_heads": 16}
    model = golden("Gemma-3-27B", text_config={**twelve, "num_key_value_heads": 8, "head_dim": 256})
    assert per_token(model) == 393_216
    assert four.exact(model, BF16, 32768) == 2_483_027_968
    assert per_token(golden("Kimi-K2.5")) == 70_272


def test_a38_a_window_that_is_off_is_no_window():
    config = {**MODELS["Qwen2-72B"].config, "max_window_layers": 70, "sliding_window": 4096}
    assert four.exact(read_config({**config, "num_key_value_heads": 64}, "Qwen1.5-72B"), BF16, 32768) == 80 * GIB
    assert four.exact(golden("Qwen2-72B"), BF16, 32768) == 10 * GIB
    assert four.exact(plain(32, 32, 8, 128, "mistral", sliding_window=None), BF16, 32768) == 4 * GIB


def test_a41_cross_attention_keeps_image_positions():
    model = golden("Llama-3.2-90B-Vision")
    assert per_token(model) == 327_680
    assert four.image_bytes(model, BF16) == 81_920
    assert four.exact(model, BF16, 8192) == 8192 * 327_680


def test_a43_both_forms_of_mla_have_names():
    expanded = golden("DeepSeek-V3", "expanded", qk_nope_head_dim=128, v_head_dim=128)
    assert expanded.elements_per_token == 61 * 40_960
    assert (per_token(golden("DeepSeek-V3")), per_token(expanded)) == (70_272, 4_997_120)
    small = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
    config = {"model_type": "deepseek_v3", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, **small}
    for form, spec_form, elements in (("latent", "absorbed", 40), ("expanded", "expanded", 160)):
        assert read_config(config, "small", form).elements_per_token == elements
        spec = latent(4, 32, 16, 8, 16, rotary=Rotary("interleaved", 8), form=spec_form)
        assert sum(s.heads * s.width for s in spec.layout(Dtype.F32).streams) == elements


def test_a45_the_cache_has_kv_heads():
    for kv, size in ((2, 3840), (1, 1920)):
        key, value = grouped(8, kv, 16).layout(Dtype.F32).streams
        assert 3 * key.bytes(10) == 3 * value.bytes(10) == size
        assert four.exact(plain(1, 8, kv, 16), FP32, 10) * 3 == 2 * size


def test_a46_groups_divide_the_head():
    phi = golden("Phi-3.5-mini")
    with pytest.raises(ValueError, match=r"got head_dim=96 .* groups of 64; valid groups: 16, 32, 48, 96$"):
        four.check_format(phi, parse_format("int4_g64"))
    assert per_token(phi, parse_format("int4_g32")) == 110_592
    assert per_token(phi) == 393_216
    odd = parse_format("int4_g65").layout(plain(1, 1, 1, 65).layers[0].streams)
    assert odd.stream("key").row_bytes == 33


DECISION = {"MHA-64": (64, 64), "GQA-8": (64, 8), "MQA": (64, 1)}


def test_e19_the_smallest_cache_flips_with_tensor_parallelism():
    def rank(name, tp):
        if name == "MLA":
            return per_rank(golden("DeepSeek-V3", num_hidden_layers=1, num_attention_heads=64), tp).bytes
        heads, kv = DECISION[name]
        return per_rank(plain(1, heads, kv, 128), tp).bytes

    bytes_at = {tp: {name: rank(name, tp) for name in (*DECISION, "MLA")} for tp in (1, 2, 4, 8, 16)}
    assert [bytes_at[tp]["MLA"] for tp in bytes_at] == [1152] * 5
    assert [bytes_at[tp]["GQA-8"] for tp in bytes_at] == [4096, 2048, 1024, 512, 512]
    assert [bytes_at[tp]["MQA"] for tp in bytes_at] == [512] * 5
    assert bytes_at[16]["MHA-64"] == 2048
    smallest = {tp: sorted(n for n, b in at.items() if b == min(at.values())) for tp, at in bytes_at.items()}
    assert smallest == {1: ["MQA"], 2: ["MQA"], 4: ["MQA"], 8: ["GQA-8", "MQA"], 16: ["GQA-8", "MQA"]}


def test_streams_say_what_they_are_for():
    """What A05, A41 and the constant state rest on: text, image and state are told apart in the layout."""
    sources = {s.source for s, _ in golden("Llama-3.2-90B-Vision").streams}
    assert sources == {Source.TEXT, Source.IMAGE}
    assert {s.keep for s, _ in golden("Llama-3.1-8B").streams} == {All()}
