"""Multi-query associative recall: what a sequence holds, what may be known of it without attention."""

from collections import Counter

import numpy as np
import torch

from experiments.measuring.learning.data import batch, held_out
from experiments.measuring.learning.decoder import Decoder
from experiments.measuring.learning.lesson import Recall
from experiments.measuring.learning.recall import NO_TARGET, sequences
from experiments.measuring.learning.train import judge
from tests.experiments.lessons import lesson

SIZES = Recall(steps=1, batch=1, context=32, pairs=5, keys=7, values=9, power=0.1, learning_rate=0.01, held_out=1)


def test_every_key_is_asked_for_once_and_its_value_is_the_target() -> None:
    inputs, targets = sequences(SIZES, 200, np.random.default_rng(0))
    for tokens, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
        pairs = dict(zip(tokens[0:10:2], tokens[1:10:2], strict=True))
        assert len(pairs) == len(set(pairs.values())) == SIZES.pairs
        assert max(pairs) < SIZES.keys <= min(pairs.values())
        assert max(pairs.values()) < SIZES.vocabulary
        asked = [place for place, target in enumerate(wanted) if target != NO_TARGET]
        assert [pairs[tokens[place]] for place in asked] == [wanted[place] for place in asked]
        assert sorted(tokens[place] for place in asked) == sorted(pairs)
        assert min(asked) >= 2 * SIZES.pairs
        assert not any(place % 2 for place in asked)


def test_queries_come_soon_after_the_pairs_for_a_small_power_and_anywhere_for_one() -> None:
    few = Recall(**{**SIZES.__dict__, "pairs": 1, "context": 64})
    soon, anywhere = (
        Counter((sequences(Recall(**{**few.__dict__, "power": power}), 4000, np.random.default_rng(1))[1] >= 0)
        .nonzero()[:, 1].tolist())
        for power in (0.01, 1.0)
    )  # fmt: skip
    first, second = 2, 4  # gaps 0 and 1, whose shares the power law has at 1 : 2^-0.99
    assert abs(soon[second] / soon[first] - 2**-0.99) < 0.06
    assert abs(anywhere[second] / anywhere[first] - 1) < 0.4
    assert len(anywhere) == 31


def test_without_attention_nothing_beats_guessing_among_all_values() -> None:
    """Trained for long, on many sequences: of the query alone no value can be known."""
    easy = lesson(recall={"batch": 64, "steps": 150, "held_out": 256, "pairs": 2, "context": 8})
    model = Decoder(easy.model, None, 64, easy.recall.vocabulary, seed=0)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(easy.recall.steps):
        inputs, targets = batch(easy, "recall", 0, step)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        optimiser.step()
    told = judge(model, held_out(easy, "recall"), 0)
    chance = easy.chance("recall") or 0.0
    spread = 4 * (chance * (1 - chance) / 512) ** 0.5
    assert told.accuracy < chance + spread
    assert told.loss > np.log(easy.recall.values) - 0.02
    assert told.loss < np.log(easy.recall.values) + 0.1  # it did learn which tokens are values


def test_without_attention_a_token_s_logits_are_its_own() -> None:
    model = Decoder(lesson().model, None, 8, 18, seed=0)
    tokens = torch.tensor([[1, 2, 3, 4]])
    assert torch.equal(model(tokens)[:, 3], model(torch.tensor([[4, 4, 4, 4]]))[:, 3])
