"""Every family that is read, small: our logits and transformers' own, in float32, and the same greedy text."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.measuring.checkpoint.generate import greedy
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.parity import Text, cached, compared, read, recomputed, theirs
from experiments.measuring.checkpoint.run import Run
from tests.builders import BACKENDS, STORAGES
from tests.experiments.measuring.checkpoint.tiny import MODELS, save, tokens
from variants.contract.dtype import Dtype

pytest.importorskip("transformers", reason="checkpoints are read by transformers")

PROMPT, NEW = 9, 14  # more together than the windows of 8
TOLERANCE = 5e-6  # largest logit error over the largest logit, float32


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    return load(str(save(tmp_path, request.param)))


def test_logits_are_those_of_transformers(model: Checkpoint) -> None:
    text = read(model, tokens(PROMPT + NEW), PROMPT)  # any text: a small model's own soon goes round in a circle
    runs = [Run(model, model.attentions, STORAGES[s], BACKENDS[b], PROMPT + NEW) for s, b in pairs(model)]
    for parity in [recomputed(text, model, model.attentions), *cached(text, model, runs)]:
        assert (parity.tokens, parity.gaps) == (NEW, ())
        assert parity.logit_error < TOLERANCE * float(text.logits.abs().max())


def pairs(model: Checkpoint) -> list[tuple[str, str]]:
    """SDPA reads no windows."""
    found = [("contiguous", "eager"), ("paged", "eager"), ("paged", "numba_split_kv")]
    windows = any(getattr(spec, "window", None) for spec in model.specs)
    return found if windows else [*found, ("contiguous", "sdpa")]


@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek_v3"])
def test_greedy_text_is_that_of_transformers(name: str, tmp_path: Path) -> None:
    model = load(str(save(tmp_path, name)))
    text, prompt = theirs(model, tokens(PROMPT), NEW), tokens(PROMPT)[0].tolist()
    run = Run(model, model.attentions, STORAGES["paged"], BACKENDS["eager"], PROMPT + NEW)
    heard: list[int] = []
    said = greedy(run, prompt, NEW, listen=heard.append)
    assert list(said.tokens) == heard == text.ids[0, PROMPT:].tolist()
    assert run.tokens == PROMPT + NEW - 1  # the last one was said and not heard
    assert run.bytes_in_use == run.bytes_predicted == sum(s.layout(Dtype.F32).bytes(run.tokens) for s in model.specs)


def test_an_end_of_text_ends_it(tmp_path: Path) -> None:
    model = load(str(save(tmp_path)))
    prompt = tokens(PROMPT)[0].tolist()

    def said(*ends: int) -> list[int]:
        run = Run(model, model.attentions, STORAGES["contiguous"], BACKENDS["eager"], PROMPT + NEW)
        return list(greedy(run, prompt, NEW, ends).tokens)

    whole = said()
    assert said(whole[3]) == whole[: whole.index(whole[3]) + 1]


def test_a_token_that_differs_is_found_and_a_near_one_forgiven() -> None:
    logits = torch.tensor([[[1.0, 0.5, 0.0], [0.0, 1.0, 0.999]]])
    text = Text(torch.tensor([[0, 0, 1]]), logits, 1)
    near = compared(text, logits + torch.tensor([[[0.0, 0.0, 0.0], [0.0, 0.0, 0.002]]]))
    assert list(near.gaps) == pytest.approx([0.001], rel=1e-3)
    assert near.logit_error == pytest.approx(0.002, rel=1e-3)
    assert near.holds
    far = compared(text, logits + torch.tensor([[[0.0, 0.6, 0.0], [0.0, 0.0, 0.0]]]))
    assert far.gaps == (0.5,)
    assert far.holds  # an error of 0.6 would explain it: the error itself is what a test bounds
    assert not replace(far, logit_error=0.04).holds
