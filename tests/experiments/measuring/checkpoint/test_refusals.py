"""Wrong checkpoints: one line that names what is wrong, before anything of it is used."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.measuring.checkpoint.load import load
from tests.experiments.measuring.checkpoint.tiny import save

pytest.importorskip("transformers", reason="checkpoints are read by transformers")
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "model"))


def refusal(asked: object) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        load(asked)
    said = str(caught.value)
    assert "\n" not in said
    return said


def configured(folder: Path, **changes: Any) -> str:
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, **changes}))
    return str(folder)


def weighed(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> str:
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    return str(folder)


@pytest.mark.parametrize("asked", [None, 3, "", "nowhere/at/all"])
def test_a_checkpoint_is_a_folder_or_a_file(asked: object) -> None:
    assert refusal(asked).startswith("checkpoint must be a folder, a .gguf file or smollm2; ")


def test_a_file_of_another_kind_is_none(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    assert "must be a folder with config.json, or a .gguf file" in refusal(str(tmp_path / "model.onnx"))


def test_a_folder_needs_a_config_and_weights(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    assert refusal(str(folder)).endswith("has no *.safetensors")
    (folder / "config.json").unlink()
    assert refusal(str(folder)).endswith("has no config.json")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt", "model.pkl"])
def test_pickles_are_refused_unread(folder: Path, name: str) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (folder / "gone off",))

    (folder / WEIGHTS).unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb()))
    for asked in (folder, folder / name):
        assert refusal(str(asked)).endswith(
            f"{name} is a pickle file, and reading one can run code: convert it to safetensors"
        )
    assert not (folder / "gone off").exists()


def test_pickles_beside_safetensors_are_left_alone(folder: Path) -> None:
    (folder / "pytorch_model.bin").write_bytes(b"no pickle")
    assert load(str(folder)).shape.num_hidden_layers == 3


def test_a_missing_tensor_is_named(folder: Path) -> None:
    asked = weighed(folder, lambda tensors: tensors.pop("model.layers.1.self_attn.k_proj.weight"))
    assert refusal(asked).endswith("config and weights disagree: missing: model.layers.1.self_attn.k_proj.weight")


def test_a_tensor_that_the_config_has_no_place_for_is_named(folder: Path) -> None:
    asked = weighed(folder, lambda tensors: tensors.update({"model.layers.0.self_attn.k_proj.bias": torch.zeros(16)}))
    said = "config and weights disagree: in no layer of the config: model.layers.0.self_attn.k_proj.bias"
    assert refusal(asked).endswith(said)


def test_a_wrong_shape_is_named_with_both(folder: Path) -> None:
    name = "model.layers.2.self_attn.v_proj.weight"
    asked = weighed(folder, lambda tensors: tensors.update({name: torch.zeros(8, 32)}))
    assert refusal(asked).endswith(f"{name} is (8, 32) in the file and (16, 32) by the config")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_key_value_heads": 4}, "k_proj.weight is (16, 32) in the file and (32, 32) by the config and 5 more"),
        ({"num_hidden_layers": 2}, "in no layer of the config: model.layers.2."),
        ({"num_hidden_layers": 4}, "missing: model.layers.3."),
        ({"num_key_value_heads": 3}, "num_kv_heads must be at least 1 and divide num_q_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"model_type": "mamba"}, "model_type must be one of llama, mistral, "),
        ({"model_type": None}, "model_type must be one of llama, mistral, "),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is set"),
        ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}, "got 'dynamic'"),
        ({"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}}, "got 'spiral'"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4}}, "Missing required keys in `rope_parameters`"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor must be 1"),
    ],
)
def test_a_config_that_cannot_be_or_is_of_another_model(folder: Path, changes: dict[str, Any], said: str) -> None:
    assert said in refusal(configured(folder, **changes))


@pytest.mark.parametrize("text", ["", "[]", "{", '"model"'])
def test_a_config_that_is_none(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert "config.json" in refusal(str(folder))


def test_alibi_and_biased_latents_are_refused(tmp_path: Path) -> None:
    assert "rope type alibi is not supported" in refusal(str(save(tmp_path / "falcon", "falcon", alibi=True)))
    biased = save(tmp_path / "mla", "deepseek_v3", attention_bias=True)
    assert "attention_bias must be false" in refusal(str(biased))


def test_an_adapter_is_no_model(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "some/where"}')
    assert "holds an adapter" in refusal(str(folder))


def test_what_would_choose_code_is_left_out(folder: Path) -> None:
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w')")
    asked = configured(
        folder,
        auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},
        attn_implementation="some/kernel",
        _attn_implementation="some/kernel",
        transformers_weights="other.safetensors",
        fusion_config={"patch_embeddings": True},
    )
    assert load(asked).model.config._attn_implementation == "eager"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("size", [0, 5, 100, 20_000, -1])
def test_safetensors_that_are_cut_short(folder: Path, size: int) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:size])
    assert f"{WEIGHTS} is cut short" in refusal(str(folder))


def test_safetensors_that_are_damaged(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole + b"more")
    assert "has bytes that are in no tensor" in refusal(str(folder))
    (folder / WEIGHTS).write_bytes(whole[:8] + b"!" + whole[9:])
    assert "is no JSON: the file is damaged" in refusal(str(folder))
    entry = json.dumps({"a": {"dtype": "F32", "shape": [1]}}).encode()
    (folder / WEIGHTS).write_bytes(len(entry).to_bytes(8, "little") + entry)
    assert "tensor 'a' has no place in the file" in refusal(str(folder))


def test_shards_are_held_to_their_index(folder: Path) -> None:
    names = ["model.norm.weight"]
    index = {"weight_map": dict.fromkeys(names, "part.safetensors")}

    def refused(**changes: str) -> str:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {**index["weight_map"], **changes}})
        )
        return refusal(str(folder))

    assert "has no part.safetensors, which model.safetensors.index.json names" in refused()
    shutil.copy(folder / WEIGHTS, folder / "part.safetensors")
    assert "part.safetensors has no tensor 'extra'" in refused(extra="part.safetensors")
    assert "must name .safetensors files of its own folder" in refused(extra="../part.safetensors")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": 3}')
    assert "must have weight_map" in refusal(str(folder))
