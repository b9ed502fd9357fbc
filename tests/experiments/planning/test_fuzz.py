"""Thousands of broken configs: an answer is exact for what the file says, a refusal is one line that names a field."""

import json
import math

import pytest

from experiments.planning import four
from experiments.planning.formats import parse_format
from experiments.planning.hf import classes
from experiments.planning.hf.read import read_config
from experiments.planning.hf.types import FORM_READERS, READERS, REMOTE
from experiments.planning.table import Asked, rows
from tests.builders import ROOT
from tests.experiments.planning.mutate import mutants
from tests.golden.models import MODELS
from variants.contract.layout import Source

SHARED = ROOT.parent / "shared" / "golden" / "configs"
BF16 = parse_format("bf16")
ASKED = Asked(tokens=(1, 131072), tps=(1, 4), formats=(BF16, parse_format("int8")))
PARTS = ("text_config", "model_type", "architectures")  # fields that decide where to read, and so stand for many


@pytest.fixture(scope="module")
def defaults():
    return classes.ask({*READERS, *FORM_READERS} - REMOTE)


def originals():
    configs = {name: model.config for name, model in MODELS.items()}
    files = {path.name: json.loads(path.read_text()) for path in SHARED.glob("*.json")} if SHARED.exists() else {}
    return {**configs, **files}


def read(config, defaults):
    return read_config(config, "mutant", defaults=defaults)


def answer(model):
    return (
        four.rate(model, BF16),
        four.exact(model, BF16, 131072),
        four.state_bytes(model),
        four.image_bytes(model, BF16),
    )


def flat(config, path=""):
    """Every value of a config by its dotted path."""
    for key, value in config.items():
        yield path + key, value
        if isinstance(value, dict):
            yield from flat(value, f"{path}{key}.")
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, dict):
                    yield from flat(item, f"{path}{key}[{i}].")


def check_answer(model, mutant, changed, before):
    """What it says it read is in the file; if it did not read what changed, the answer is the original's."""
    stated = dict(flat(mutant))
    for source in model.sources:
        value, _, place = source.partition("=")[2].rpartition(" from config ")
        if value:
            assert place in stated, source
            assert value.endswith("...") or value == repr(stated[place]), source
    told = " ".join([*model.sources, *model.notes])
    if not any(name in told for name in (*changed, *PARTS)) and not changed & set(PARTS):
        assert answer(model) == before, (changed, told)
    for row in rows(model, ASKED):
        assert row.status in ("ok", "refused")
        numbers = [v for v in vars(row).values() if isinstance(v, int | float)]
        assert all(math.isfinite(v) and v >= 0 for v in numbers)


def check_refusal(error, changed):
    """One line, not endless, and it names a field that was changed (or one whose absence the change made matter)."""
    text = str(error)
    assert "\n" not in text
    assert len(text) < 1000
    assert any(name in text for name in changed) or any(part in changed for part in PARTS), (text, changed)


def fuzz(count, seed, defaults):
    configs = originals()
    before = {name: answer(read(config, defaults)) for name, config in configs.items()}
    answers = 0
    for name, mutant, changed in mutants(configs, count, seed):
        try:
            model = read(mutant, defaults)
        except ValueError as error:
            check_refusal(error, changed)
        else:
            answers += 1
            check_answer(model, mutant, changed, before[name])
    return answers


@pytest.mark.slow
def test_hundreds_of_broken_configs(defaults):
    assert 50 < fuzz(400, 1, defaults) < 350


@pytest.mark.slow
def test_ten_thousand_broken_configs(defaults):
    assert fuzz(10_000, 2, defaults) > 1000


PLAIN = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 6}


def test_answers_of_a_plain_model_are_the_formulas(defaults):
    """The one family whose arithmetic fits in a line, held to it for every mutant that is answered."""
    config = {**PLAIN, "num_key_value_heads": 2, "head_dim": 20}
    for _, mutant, _ in mutants({"plain": config}, 300, 3):
        try:
            model = read(mutant, defaults)
        except ValueError:
            continue
        class_says = defaults["llama"] if {"num_hidden_layers", "num_attention_heads"} - set(mutant) else {}
        sizes = {**class_says, **mutant}
        heads = sizes["num_attention_heads"]
        hidden = sizes.get("hidden_size") or defaults["llama"]["hidden_size"]
        width = mutant.get("head_dim") or hidden // heads
        kv = mutant.get("num_key_value_heads") or heads
        assert four.rate(model, BF16) == 2 * sizes["num_hidden_layers"] * kv * width * 2


def test_a_mutant_is_not_the_original():
    """The check above can fail: nearly all mutants differ, and the names say where."""
    configs = {name: model.config for name, model in MODELS.items()}
    different = [name for name, mutant, changed in mutants(configs, 200, 4) if mutant != configs[name] and changed]
    assert len(different) > 190


def test_text_streams_are_what_the_answer_counts():
    model = read(MODELS["Llama-3.1-8B"].config, {})
    assert sum(n * s.bytes(1) for s, n in model.streams if s.source is Source.TEXT) == four.exact(model, BF16, 1)
