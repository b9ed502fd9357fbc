"""What transformers' classes are asked, and what happens where they cannot be."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.planning.hf import classes, many
from experiments.planning.hf.names import TEXT_TYPE
from experiments.planning.hf.types import CLASS_OF, FORM_READERS, READERS, REMOTE
from experiments.planning.model_cache import ModelCache
from tests.blocking import not_installed

LLAVA = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "llava.json"
    path.write_text(json.dumps(LLAVA))
    return path


def test_defaults_of_a_class_and_none_for_a_stranger():
    found = classes.ask(["llama", "nobody", "gpt2"])
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    assert [found["llama"][name] for name in sizes] == [32, 4096, 32, None]
    assert found["nobody"] == {}
    assert found["gpt2"]["n_layer"] == 12


def test_every_type_that_we_read_has_a_class_or_is_listed_as_remote():
    types = {*READERS, *FORM_READERS}
    found = classes.ask(types)
    assert {name for name in types if not found[name]} == REMOTE | set(CLASS_OF)
    assert set(TEXT_TYPE.values()) <= types


def test_one_process_answers_for_all_files(file, monkeypatch):
    asked = []
    answer = classes.ask

    def ask(types):
        asked.append(set(types))
        return answer(types)

    monkeypatch.setattr(classes, "ask", ask)
    other = file.with_name("mistral.json")
    other.write_text(json.dumps({"model_type": "mistral", "hidden_size": 64, "num_attention_heads": 8}))
    first, second = many.read_many([file, other])
    assert asked == [{"llama", "mistral"}]
    assert isinstance(first, ModelCache)
    assert len(first.layers) == 32
    assert isinstance(second, ModelCache)
    assert "assumed class default num_hidden_layers=32" in second.notes


def test_a_class_that_cannot_be_asked_names_the_field(file, monkeypatch):
    def refuse(types):
        raise ValueError("transformers is not installed")

    monkeypatch.setattr(classes, "ask", refuse)
    (found,) = many.read_many([file])
    assert isinstance(found, many.Refused)
    assert found.reason.startswith("num_hidden_layers is missing")
    assert found.reason.endswith("transformers is not installed")


def test_without_transformers_the_child_says_so():
    script = Path(classes.__file__).read_text()
    command = [sys.executable, "-c", not_installed("transformers") + script]
    done = subprocess.run(command, input='["llama"]', capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.strip() == "transformers is not installed (pip install 'kvariants[hf]')"


def test_torch_stays_out_of_the_child():
    script = Path(classes.__file__).read_text()
    command = [sys.executable, "-c", not_installed("torch") + script]
    done = subprocess.run(command, input='["llama"]', capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["llama"]["hidden_size"] == 4096
