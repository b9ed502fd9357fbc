"""Perplexity and divergence, held to sums in float64 over transformers' own logits."""

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from experiments.measuring.checkpoint.conversion import attentions_as
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.score import ROWS, score
from experiments.scored import perplexity
from tests.builders import config
from tests.experiments.measuring.checkpoint.tiny import save, tokens
from variants.protocols import Attention

pytest.importorskip("transformers", reason="checkpoints are read by transformers")
WINDOWS = tokens(3 * 40, seed=5).view(3, 40)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load(str(save(tmp_path_factory.mktemp("model"), "llama", max_position_embeddings=256)))


def guesses(logits: torch.Tensor) -> NDArray[np.float64]:
    """Probabilities by the definition, in float64."""
    exps: NDArray[np.float64] = np.exp(logits.double().numpy())
    return np.asarray(exps / exps.sum(axis=-1, keepdims=True))


def by_hand(logits: torch.Tensor, window: torch.Tensor) -> float:
    said = guesses(logits)
    return -sum(math.log(said[place, token]) for place, token in enumerate(window[1:])) / (len(window) - 1)


def converted(model: Checkpoint, name: str) -> tuple[Attention, ...]:
    return attentions_as(model, config("attention")[name]).attentions


def test_the_original_scores_as_transformers_logits_say(model: Checkpoint) -> None:
    found = score(model, model.attentions, WINDOWS)
    wanted = [by_hand(model.model(window[None]).logits[0, :-1], window) for window in WINDOWS]
    assert found.nll == pytest.approx(wanted, rel=1e-5)
    assert perplexity(found.nll) == pytest.approx(math.exp(sum(wanted) / 3), rel=1e-5)
    assert found.kl == (0.0, 0.0, 0.0)


def test_places_beyond_one_part_count(model: Checkpoint) -> None:
    window = tokens(ROWS + 30, seed=6)
    found = score(model, model.attentions, window)
    assert found.nll == pytest.approx([by_hand(model.model(window).logits[0, :-1], window[0])], rel=1e-5)


def test_heads_repeated_have_the_originals_perplexity(model: Checkpoint) -> None:
    own, repeated = (score(model, each, WINDOWS) for each in (model.attentions, converted(model, "mha")))
    assert perplexity(repeated.nll) == pytest.approx(perplexity(own.nll), rel=1e-4)
    assert max(repeated.kl) < 1e-8


def test_divergence_is_from_the_originals_guesses_to_the_variants(model: Checkpoint) -> None:
    layers = converted(model, "mqa")
    found = score(model, layers, WINDOWS)
    theirs = [layer.self_attn for layer in model.model.model.layers]
    for window, kl, nll in zip(WINDOWS, found.kl, found.nll, strict=True):
        p = guesses(model.model(window[None]).logits[0, :-1])
        logits = _with(model, layers, window)
        q = guesses(logits)
        assert kl == pytest.approx((p * np.log(p / q)).sum() / 39, rel=1e-4)
        assert kl != pytest.approx((q * np.log(q / p)).sum() / 39, rel=1e-2)
        assert nll == pytest.approx(by_hand(logits, window), rel=1e-5)
    assert [layer.self_attn for layer in model.model.model.layers] == theirs


def _with(model: Checkpoint, layers: tuple[Attention, ...], window: torch.Tensor) -> torch.Tensor:
    """Logits of transformers' own attention given the converted layers' weights, its two kv heads both the one."""
    places = [layer.self_attn for layer in model.model.model.layers]
    before = [{name: weight.clone() for name, weight in place.state_dict().items()} for place in places]
    for place, layer in zip(places, layers, strict=True):
        state = layer.state_dict()  # type: ignore[attr-defined]
        twice = {name: torch.cat([state[name], state[name]]) for name in state if name.startswith(("k_", "v_"))}
        place.load_state_dict({**state, **twice})
    logits: torch.Tensor = model.model(window[None]).logits[0, :-1]
    for place, state in zip(places, before, strict=True):
        place.load_state_dict(state)
    return logits
