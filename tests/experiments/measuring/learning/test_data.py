"""The same batches for every variant, and nothing held out that was trained on."""

from pydoc_data.topics import topics

import pytest
import torch

from experiments.measuring.learning.data import batch, digest, held_out
from experiments.measuring.learning.text import corpus
from tests.experiments.lessons import lesson


@pytest.mark.parametrize("task", ["recall", "text"])
def test_a_batch_is_a_function_of_seed_and_step_alone(task: str) -> None:
    first = batch(lesson(), task, 1, 2)
    torch.manual_seed(99)
    again = batch(lesson(), task, 1, 2)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    for seed, step in ((1, 3), (2, 2)):
        assert not torch.equal(first[0], batch(lesson(), task, seed, step)[0])


@pytest.mark.parametrize("task", ["recall", "text"])
def test_the_hash_of_the_data_tells_seeds_and_settings_apart(task: str) -> None:
    one = digest(lesson(), task, 0)
    assert one == digest(lesson(weight_decay=0.1), task, 0)
    others = [digest(lesson(), task, 1), digest(lesson(**{task: {"steps": 5}}), task, 0)]
    assert len({one, *others}) == 3


def test_targets_of_text_are_the_next_bytes_and_windows_are_of_their_side() -> None:
    train, rest = corpus()
    for (inputs, targets), side in ((batch(lesson(), "text", 0, 0), train), (held_out(lesson(), "text")[0], rest)):
        for window, following in zip(inputs.tolist(), targets.tolist(), strict=True):
            assert window[1:] == following[:-1]
            assert bytes([*window, following[-1]]) in side


def test_topics_are_on_one_side_only_and_most_of_them_are_trained_on() -> None:
    train, rest = corpus()
    sides = {name: (text.encode() in train, text.encode() in rest) for name, text in topics.items()}
    assert all(one + other == 1 for one, other in sides.values())
    assert 0.1 < len(rest) / (len(train) + len(rest)) < 0.4
    assert len(train) + len(rest) > 300_000


def test_held_out_data_come_whole_and_in_batches() -> None:
    told = held_out(lesson(recall={"held_out": 10}), "recall")
    assert [len(inputs) for inputs, _ in told] == [4, 4, 2]


def test_windows_longer_than_the_text_are_refused() -> None:
    with pytest.raises(ValueError, match=r"text.context must be < \d+, the bytes of the shorter part; got 99999999"):
        held_out(lesson(text={"context": 99999999}), "text")
