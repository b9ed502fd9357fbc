"""Config files to layers: where the text part is, what decides the kind, and what is refused by name."""

import json

import pytest

from experiments.planning import four
from experiments.planning.formats import parse_format
from experiments.planning.hf.fields import Undecided, Unreadable
from experiments.planning.hf.read import read_config
from experiments.planning.hf.source import LARGEST, load
from variants.contract.keep import All, Window
from variants.contract.layout import Source

BF16 = parse_format("bf16")
SIZES = {"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2}
LLAMA = {"model_type": "llama", **SIZES}
WINDOWED = {**SIZES, "head_dim": 8, "sliding_window": 16}
FREQUENCY = {"sparse_attention_freq": [0, 1, 1, 1], "sparse_index_dim": 4}
M3 = {
    "model_type": "minimax_m3",
    **SIZES,
    "head_dim": 8,
    "sparse_attention_config": {**FREQUENCY, "sparse_disable_index_value": [0, 1, 0, 1]},
}
LATENT = {"kv_lora_rank": 32, "qk_rope_head_dim": 8}


def read(config, **options):
    return read_config(config, "case", **options)


def windows(config):
    """Per layer: the window, None where everything is kept."""
    keeps = [layer.streams[0].keep for layer in read(config).layers]
    assert all(isinstance(keep, All | Window) for keep in keeps)
    return [getattr(keep, "size", None) for keep in keeps]


@pytest.mark.parametrize("part", ["text_config", "language_config", "llm_config"])
def test_the_text_part_may_be_nested(part):
    vision = {"num_hidden_layers": 99, "hidden_size": 99, "num_attention_heads": 1}
    model = read({"model_type": "anything_vl", "vision_config": vision, part: LLAMA})
    assert four.rate(model, BF16) == four.rate(read(LLAMA), BF16)
    assert f"num_hidden_layers=4 from config {part}.num_hidden_layers" in model.sources


def test_a_thinker_is_looked_into():
    model = read({"model_type": "omni", "thinker_config": {"model_type": "t", "text_config": LLAMA}})
    assert "num_hidden_layers=4 from config thinker_config.text_config.num_hidden_layers" in model.sources


def test_the_enclosing_type_tells_the_text_type():
    assert read({"model_type": "gemma3", "text_config": WINDOWED}).model_type == "gemma3_text"
    assert read({"model_type": "qwen2_vl", **SIZES}).model_type == "qwen2_vl_text"


def test_architectures_tell_the_type_where_model_type_is_missing():
    model = read({"architectures": ["MiniCPM3ForCausalLM"], **SIZES, **LATENT})
    assert (model.model_type, model.kind) == ("minicpm3", "MLA")


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (SIZES, "^model_type is missing"),
        ({"model_type": "from_next_year", **SIZES}, "^model_type 'from_next_year' is not known"),
        (
            {"model_type": "t5", **SIZES, "is_encoder_decoder": True},
            "^model_type 't5' is not known: is_encoder_decoder is",
        ),
        ({"model_type": 7, **SIZES}, "^model_type must be a string; got int"),
        ({"model_type": "llama", "architectures": ["X"]}, "^num_hidden_layers is missing: the file says nothing but"),
        ({"model_type": "gemma3", "vision_config": {}}, "^text_config is missing"),
        ({"model_type": "gemma3", "text_config": "x"}, "^text_config must be an object; got str"),
        ({"model_type": "vl", "text_config": SIZES}, r"^text_config\.model_type is missing"),
        ({**LLAMA, "num_key_value_heads": 3}, "^num_key_value_heads must divide num_attention_heads; got .*=8, .*=3$"),
        (
            {"model_type": "mimo_v2", **SIZES, "head_dim": 8, "v_head_dim": 8, "swa_num_attention_heads": 7},
            "^swa_num_key_value_heads must divide swa_num_attention_heads; got swa_num_attention_heads=7, .*=4$",
        ),
        ({**LLAMA, "num_hidden_layers": 5000}, "^num_hidden_layers must be a whole number from 1 to 4096; got 5000"),
        ({**LLAMA, "num_hidden_layers": None}, "^num_hidden_layers is null"),
        ({**LLAMA, "hidden_size": 65}, "num_attention_heads must divide hidden_size; got hidden_size=65"),
        (
            {"model_type": "baichuan", "hidden_size": 64},
            "^num_hidden_layers is missing .*, and model_type .baichuan. needs it",
        ),
        ({**LLAMA, **LATENT}, "^kv_lora_rank is set, but model_type 'llama' keeps plain keys and values"),
        (
            {"model_type": "deepseek_v3", **SIZES, **LATENT, "compress_ratios": [4] * 4},
            "^compress_ratios is set, but model_type 'deepseek_v3' keeps a latent of every token",
        ),
        (
            {"model_type": "olmo_hybrid", **SIZES, "layer_types": ["sliding_attention"] * 4},
            "^layer_types must hold att",
        ),
        ({**LLAMA, "layer_types": ["full_attention"]}, "^layer_types must have one entry per layer; got 1 entries"),
        (
            {**LLAMA, "layer_types": ["full_attention"] * 6, "num_nextn_predict_layers": 1},
            "^layer_types must have one entry per layer; got 6 entries, .*=4, num_nextn_predict_layers=1$",
        ),
        ({**LLAMA, "layer_types": ["magic"] * 4}, "^layer_types must hold .*; got 'magic'"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 4}, "^sliding_window is missing, and layer_types"),
        ({"model_type": "openelm", "num_transformer_layers": 1, "head_dim": 8}, "^num_query_heads is missing"),
        ({"model_type": "falcon", **SIZES, "multi_query": "yes"}, "^multi_query must be true or false; got 'yes'"),
        (
            {"model_type": "gpt2", "n_layer": 1, "n_head": 2, "attention_head_type": "x"},
            "^attention_head_type must be multihead or multiq",
        ),
        (
            {"model_type": "minimax_m2", **SIZES, "attn_type_list": [1, 0, 1, 1]},
            "^attn_type_list is set, but model_type",
        ),
        (
            {**M3, "layer_types": ["sparse"] * 4},
            "^layer_types must hold full_attention and",
        ),
        (M3, r"^sparse_attention_config\.sparse_disable_index_value must be 1 where a layer is sparse"),
        ({"model_type": "deepseek_ref", **WINDOWED, "index_head_dim": 8}, "^compress_ratios is missing"),
        ({"model_type": "zamba2", **SIZES, "hybrid_layer_ids": [4]}, "^hybrid_layer_ids must hold layer numbers below"),
        ({"model_type": "nemotron_h", **SIZES}, "^hybrid_override_pattern is missing"),
        ({"model_type": "nemotron_h", **SIZES, "hybrid_override_pattern": "M*"}, "got 2 letters, num_hidden_layers=4$"),
        (
            {"model_type": "deepseek_v4", **WINDOWED, "index_head_dim": 8, "compress_ratios": [3] * 4},
            "^compress_ratios",
        ),
        ({**LLAMA, "per_layer_config": {"9": {}}}, "^per_layer_config must have layer numbers from 0 to 3; got '9'"),
    ],
)
def test_refusals_name_the_field(config, named):
    with pytest.raises(Unreadable, match=named):
        read(config)


def test_a_number_of_the_class_is_asked_for_and_never_guessed():
    config = {"model_type": "mistral", **{k: v for k, v in SIZES.items() if k != "num_key_value_heads"}}
    with pytest.raises(Undecided, match="num_key_value_heads is absent; the class of model_type 'mistral'"):
        read(config)
    model = read(config, defaults={"mistral": {"num_key_value_heads": 4, "sliding_window": 32}})
    assert model.layers[0].streams[0].heads == 4
    assert "num_key_value_heads=4 class default of mistral" in model.sources
    assert "assumed class default num_key_value_heads=4" in model.notes


def test_a_class_without_the_field_leaves_it_missing():
    config = {"model_type": "mistral", **SIZES}
    del config["num_hidden_layers"]
    with pytest.raises(Unreadable, match="^num_hidden_layers is missing"):
        read(config, defaults={"mistral": {}})


def test_falcons_flag_means_nothing_in_its_new_architecture():
    sizes = {"num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 8, "multi_query": True}
    assert read({"model_type": "falcon", **sizes}).kind == "MQA"
    assert read({"model_type": "falcon", **sizes, "new_decoder_architecture": True}).kind == "MHA"


@pytest.mark.parametrize("flag", [{"multi_query": True}, {"attention_head_type": "multiquery"}])
def test_a_flag_for_one_head_counts_unless_heads_are_stated(flag):
    bare = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
    assert read({"model_type": "gpt2", **bare, **flag}).kind == "MQA"
    assert read({"model_type": "gpt2", **bare}).kind == "MHA"
    assert read({"model_type": "gpt2", **SIZES, **flag}).layers[0].streams[0].heads == 2


def test_entries_of_layers_that_predict_ahead_are_left_out():
    kinds = ["full_attention", "sliding_attention"] * 3
    assert windows({**LLAMA, "sliding_window": 16, "layer_types": kinds, "num_nextn_predict_layers": 2}) == [
        *(None, 16),
        *(None, 16),
    ]


def test_sparse_layers_of_minimax_m3_keep_an_indexers_key_unless_that_is_off():
    sparse = {**FREQUENCY, "sparse_disable_index_value": [0, 1, 1, 1]}
    assert four.parts(read({**M3, "sparse_attention_config": sparse}), BF16)["index"] == 3 * 4 * 2
    off = {**sparse, "use_sparse_attention": False}
    assert "index" not in four.parts(read({**M3, "sparse_attention_config": off}), BF16)
    kinds = ["full_attention", "minimax_m3_sparse"] * 2
    listed = {"model_type": "minimax_m3_vl_text", **SIZES, "head_dim": 8, "index_head_dim": 4, "layer_types": kinds}
    assert four.parts(read(listed), BF16)["index"] == 2 * 4 * 2


EVERY_SECOND = [16, None, 16, None]
PATTERNS = {
    "gemma2": ({}, EVERY_SECOND),
    "gpt_oss": ({}, EVERY_SECOND),
    "olmo3": ({}, [16, 16, 16, None]),
    "cohere2": ({"sliding_window_pattern": 2}, EVERY_SECOND),
    "exaone4": ({"sliding_window_pattern": "LG"}, EVERY_SECOND),
    "gemma3_text": ({"sliding_window_pattern": 3}, [16, 16, None, 16]),
    "mistral": ({}, [16] * 4),
    "phi3": ({"max_position_embeddings": 16}, [None] * 4),
    "qwen2": ({"use_sliding_window": True, "max_window_layers": 3}, [None, None, None, 16]),
    "qwen3": ({"max_window_layers": 0}, [None] * 4),
    "cwm": ({}, [None, 16, 16, 16]),
    "smollm3": ({"use_sliding_window": True}, [None, None, None, 16]),
    "llama": ({"layer_types": ["sliding_attention", "full_attention"] * 2}, EVERY_SECOND),
}


@pytest.mark.parametrize(("name", "more", "expected"), [(n, *case) for n, case in PATTERNS.items()], ids=PATTERNS)
def test_which_layers_slide(name, more, expected):
    assert windows({"model_type": name, **WINDOWED, **more}) == expected


def test_llama4_attends_in_chunks_where_it_rotates():
    config = {"model_type": "llama4_text", **SIZES, "head_dim": 8, "attention_chunk_size": 32}
    assert windows(config) == [32, 32, 32, None]
    assert windows({**config, "no_rope_layers": [1, 0, 1, 0]}) == [32, None, 32, None]
    assert read(config).kind == "GQA+chunked"


def test_a_layer_that_slides_has_its_own_sizes_even_where_its_window_never_binds():
    wide = {**WINDOWED, "head_dim": 8, "global_head_dim": 32, "num_hidden_layers": 6, "max_position_embeddings": 16}
    model = read({"model_type": "gemma4_text", **wide})
    assert [(layer.role, layer.streams[0].width) for layer in model.layers] == [("full", 8)] * 5 + [("full", 32)]


def test_a_layer_marked_as_sliding_needs_a_window():
    config = {
        "model_type": "mimo_v2_flash",
        **SIZES,
        "head_dim": 8,
        "v_head_dim": 8,
        "hybrid_layer_pattern": [0, 1, 1, 1],
    }
    with pytest.raises(
        Unreadable, match="^sliding_window is missing, and hybrid_layer_pattern has layers that need it"
    ):
        read({**config, "sliding_window": None})


def test_layers_of_a_resaved_file_may_override_sizes():
    model = read({**LLAMA, "per_layer_config": {"1": {"num_key_value_heads": 4, "head_dim": 16}}})
    shapes = [(layer.streams[0].heads, layer.streams[0].width) for layer in model.layers]
    assert shapes == [(2, 8), (4, 16), (2, 8), (2, 8)]


def test_cross_layer_sharing_keeps_one_layer_in_two():
    model = read({"model_type": "hunyuan", **SIZES, "use_cla": True, "cla_share_factor": 2})
    assert [bool(layer.streams) for layer in model.layers] == [True, False, True, False]
    assert model.kind == "GQA+shared"


def test_an_indexer_may_borrow():
    config = {"model_type": "glm_moe_dsa", **SIZES, **LATENT, "index_head_dim": 4}
    assert four.parts(read(config), BF16)["index"] == 4 * 4 * 2
    assert four.parts(read({**config, "index_topk_pattern": "FSFS"}), BF16)["index"] == 2 * 4 * 2


def test_deepseek_without_mla_is_plain():
    config = {"model_type": "deepseek_v2", **SIZES, "use_mla": False, "kv_lora_rank": None}
    assert read(config).kind == "GQA"


def test_states_take_the_dtype_of_the_file():
    config = {
        "model_type": "mamba2",
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_heads": 2,
        "head_dim": 8,
        "n_groups": 1,
        "state_size": 4,
        "conv_kernel": 4,
        "expand": 2,
    }
    conv, ssm = 3 * (16 + 2 * 4), 2 * 8 * 4
    assert four.state_bytes(read(config)) == 2 * (conv + ssm)
    assert four.state_bytes(read({**config, "mamba_ssm_dtype": "float32"})) == 2 * conv + 4 * ssm
    assert {s.source for s, _ in read(config).streams} == {Source.STATE}


def test_mla_weights_count_both_projections_of_the_latent():
    sizes = {"kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12, "q_lora_rank": 24}
    model = read({"model_type": "deepseek_v3", **SIZES, **sizes})
    query, latent = 64 * 24 + 24 * 8 * 24, 64 * 40 + 32 * 8 * (16 + 12)
    assert model.layers[0].weights == query + latent + 8 * 12 * 64


def test_plain_weights_are_the_four_projections():
    assert read(LLAMA).layers[0].weights == 2 * 64 * 64 + 2 * 64 * 16


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe{}", "must be JSON in UTF-8"),
        (b"[" * 100_000, "is nested too deep"),
        (b'{"a": ' + b"9" * 5000 + b"}", "is no JSON"),
        (b'"text"', "must hold one JSON object; got str"),
        (b"", "is no JSON"),
    ],
)
def test_files_that_are_no_config(content, why, tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{why}") as refused:
        load(file)
    assert "\n" not in str(refused.value)


def test_a_file_of_gigabytes_is_not_read(tmp_path):
    file = tmp_path / "config.json"
    with file.open("wb") as sparse:
        sparse.truncate(LARGEST + 1)
    with pytest.raises(ValueError, match="must be below"):
        load(file)


def test_code_in_a_file_is_data(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA, "auto_map": {"AutoConfig": "evil.Evil"}, "trust_remote_code": True}))
    assert read(load(file)).kind == "GQA"
