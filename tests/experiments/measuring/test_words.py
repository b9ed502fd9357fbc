"""Of all that a worker says, what a row can hold."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from experiments.measuring.words import STDERR_BYTES, TAIL, Words, in_short


@pytest.fixture
def words() -> Iterator[Words]:
    made = Words.new()
    yield made
    made.close()


def said(words: Words, text: str) -> str | None:
    """What is told after another process has said so much."""
    script = "import os, sys; os.write(2, sys.stdin.buffer.read())"
    subprocess.run([sys.executable, "-c", script], input=text.encode(), stderr=words._file, check=True)
    return words.last()


def test_what_was_told_is_not_told_again(words: Words) -> None:
    assert words.last() is None
    assert said(words, "one\ntwo\n") == "one\ntwo"
    assert words.last() is None
    assert said(words, "three\n") == "three"


def test_of_much_the_last_lines(words: Words) -> None:
    told = said(words, "".join(f"line {number}\n" for number in range(10_000)))
    assert told is not None
    assert told.endswith("line 9999")
    assert len(told) in range(STDERR_BYTES - 20, STDERR_BYTES + 1)
    assert told.startswith("line ")
    assert said(words, "x" * 10_000) == "x" * STDERR_BYTES


def test_of_a_fatal_error_the_beginning_and_no_list_of_what_was_imported(words: Words) -> None:
    frames = "".join(f'  File "deep.py", line {number} in call\n' for number in range(100))
    listed = "Extension modules: " + ", ".join(["numpy"] * 500) + "\n"
    told = said(words, f"before\nFatal Python error: Segmentation fault\n\n{frames}{listed}")
    assert told is not None
    assert told.startswith('Fatal Python error: Segmentation fault\n\n  File "deep.py", line 0 in call\n')
    assert "numpy" not in told
    short = in_short(told)
    assert short.startswith('Fatal Python error: Segmentation fault File "deep.py", line 0 in call File')
    assert len(short) == TAIL


def test_in_short_is_the_end_in_one_line() -> None:
    assert in_short(None) == ""
    assert in_short("a\n b\n") == "a b"
    assert in_short("x" * 1000 + "end")[-4:] == "xend"
