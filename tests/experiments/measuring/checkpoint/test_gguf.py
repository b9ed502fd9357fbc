"""GGUF files: the same model as the one that was written, and one line for what is not read."""

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.measuring.checkpoint.load import load
from tests.experiments.measuring.checkpoint.tiny import save_gguf

pytest.importorskip("transformers", reason="checkpoints are read by transformers")
pytest.importorskip("gguf", reason="GGUF files are read by the package gguf")


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_a_file_holds_the_model_that_was_written(kind: str, tmp_path: Path) -> None:
    written = save_gguf(tmp_path / "model.gguf", kind)
    read = load(str(tmp_path / "model.gguf"))
    assert read.note == ""  # F32 all through
    assert read.shape.rotary.theta == 10_000
    ours = dict(read.model.named_parameters())
    assert set(ours) == set(dict(written.named_parameters()))
    for name, parameter in written.named_parameters():
        assert torch.equal(ours[name], parameter), name


def test_a_folder_with_one_file_is_that_file(tmp_path: Path) -> None:
    save_gguf(tmp_path / "only.gguf", "llama")
    assert load(str(tmp_path)).source.name == "only"
    save_gguf(tmp_path / "other.gguf", "llama")
    with pytest.raises(ValueError, match="has 2 .gguf files: name one of them"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"leave_out": ["blk.1.attn_k.weight"]}, "missing: model.layers.1.self_attn.k_proj.weight"),
        ({"leave_out": ["token_embd.weight"]}, "missing: token_embd.weight"),
        ({"rope__scaling__type": "yarn"}, "rope scaling of a GGUF file is not supported"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    save_gguf(tmp_path / "wrong.gguf", "llama", **changes)
    with pytest.raises(ValueError, match=said) as caught:
        load(str(tmp_path / "wrong.gguf"))
    assert "\n" not in str(caught.value)


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    path, named = tmp_path / "other.gguf", b"\x05\0\0\0\0\0\0\0"
    save_gguf(path, "llama")
    path.write_bytes(path.read_bytes().replace(named + b"llama", named + b"gemma", 1))
    with pytest.raises(ValueError, match="must be one of llama, qwen2, qwen3; got 'gemma'"):
        load(str(path))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.999])
def test_a_file_that_is_cut_short_is_refused(share: float, tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    save_gguf(path, "llama")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match="short.gguf is cut short or no GGUF file") as caught:
        load(str(path))
    assert "\n" not in str(caught.value)
