"""Three parts of a text that every Python holds, and nothing of one in another."""

from itertools import combinations
from pydoc_data.topics import topics

import pytest
import torch

from experiments.measuring.checkpoint.corpus import LONG, apart, calibration_of, corpus


def letters(text: str) -> list[int]:
    return list(text.encode())


def test_parts_are_as_large_as_asked_and_of_different_topics() -> None:
    text = corpus(letters, 100, held_out=30, calibration=20, training=50)
    parts = (text.held_out, text.calibration, text.training)
    assert [tuple(part.windows.shape) for part in parts] == [(30, 100), (20, 100), (50, 100)]
    assert [part.tokens for part in parts] == [3000, 2000, 5000]
    for one, other in combinations(parts, 2):
        assert not set(one.topics) & set(other.topics)
        assert one.digest != other.digest
    assert all(part.topics for part in parts)


def test_the_same_again_and_more_text_elsewhere_changes_no_held_out_text() -> None:
    some, more = (corpus(letters, 100, 30, 20, training) for training in (50, 90))
    assert torch.equal(some.held_out.windows, more.held_out.windows)
    assert some.held_out.digest == more.held_out.digest
    assert some.training.digest != more.training.digest


def test_windows_are_the_topics_text() -> None:
    part = calibration_of(letters, 64, 8)
    said = bytes(part.windows.flatten().tolist()).decode(errors="ignore")
    assert said[:60] == dict(apart(topics))[part.topics[0]][: len(said)][:60]


def test_no_long_paragraph_stands_twice() -> None:
    paragraphs = [" ".join(p.split()) for _, text in apart(topics) for p in text.split("\n\n")]
    long = [p for p in paragraphs if len(p) >= LONG]
    assert len(long) == len(set(long)) > 1000
    everything = {" ".join(p.split()) for text in topics.values() for p in text.split("\n\n")}
    assert set(paragraphs) - {""} == everything - {""}


def test_a_quoted_paragraph_stays_in_the_first_topic_alone() -> None:
    quoted = "a paragraph that is long enough to be somebody's own"
    found = apart({"a": f"first\n\n{quoted}", "b": f"{quoted}\n\nlast", "c": "first"})
    assert sorted(name for name, _ in found) == ["a", "b", "c"]
    assert sum(quoted in text for _, text in found) == 1
    assert sum("first" in text for _, text in found) == 2


def test_too_little_text_is_said() -> None:
    with pytest.raises(ValueError, match="pydoc_data.topics has too little text: 9000 windows of 1000 tokens"):
        corpus(letters, 1000, 1, 1, 9000)
