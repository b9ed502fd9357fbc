"""Real text that every Python brings: its language reference, as ``pydoc`` shows it (``pydoc_data.topics``).

Three parts share nothing: no topic is in two of them, and a paragraph that several topics quote stays in the first
alone. The order of topics is that of a hash of their names, so that it is nobody's choice.
"""

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from experiments.measuring.checkpoint.hub import silence
from experiments.measuring.checkpoint.load import Checkpoint

NAME = "pydoc_data.topics"
LONG = 40  # characters: shorter paragraphs ("For example:") are nobody's own

Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True)
class Part:
    """Windows of tokens, one after the other, and the topics that they are from."""

    windows: Int[Tensor, "N T"]
    topics: tuple[str, ...]

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.windows.numel()

    @property
    def digest(self) -> str:
        """What tells it from any other text, or from the same text in other tokens."""
        told = hashlib.sha256(str(tuple(self.windows.shape)).encode())
        told.update(self.windows.contiguous().numpy().tobytes())
        return told.hexdigest()[:16]


@dataclass(frozen=True)
class Corpus:
    """``held_out`` is for scores alone, ``calibration`` for conversions, ``training`` for distillation."""

    held_out: Part
    calibration: Part
    training: Part


def source() -> str:
    """The text and its version: every Python has its own."""
    return f"{NAME} of Python {platform.python_version()}"


def corpus(encode: Encode, window: int, held_out: int, calibration: int, training: int) -> Corpus:
    """The parts, each of so many windows of ``window`` tokens; ValueError where the text ends before."""
    left = iter(_topics())
    return Corpus(*(_part(left, encode, window, windows) for windows in (held_out, calibration, training)))


def calibration_of(encode: Encode, window: int, windows: int) -> Part:
    """Text to fit a conversion to, where nothing is scored."""
    return _part(iter(_topics()), encode, window, windows)


def apart(topics: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and texts in the order of a hash, each without the long paragraphs of those before it."""
    seen: set[str] = set()
    found = []
    for name in sorted(topics, key=lambda name: hashlib.sha256(name.encode()).digest()):
        own = []
        for paragraph in topics[name].split("\n\n"):
            said = " ".join(paragraph.split())
            if len(said) < LONG or said not in seen:
                own.append(paragraph)
            seen.add(said)
        found.append((name, "\n\n".join(own)))
    return found


def _topics() -> list[tuple[str, str]]:
    from pydoc_data.topics import topics

    return apart(topics)


def _part(left: Iterator[tuple[str, str]], encode: Encode, window: int, windows: int) -> Part:
    """The next topics until they fill the windows; what the last of them has beyond that is nobody's."""
    tokens: list[int] = []
    names = []
    while len(tokens) < windows * window:
        name, text = next(left, (None, ""))
        if name is None:
            raise ValueError(
                f"{NAME} has too little text: {windows} windows of {window} tokens were asked for and "
                f"{len(tokens)} tokens are left; take fewer"
            )
        names.append(name)
        tokens += encode(text)
    return Part(torch.tensor(tokens[: windows * window], dtype=torch.long).view(windows, window), tuple(names))


def encoder(checkpoint: Checkpoint) -> Encode:
    """The checkpoint's tokenizer as a function of texts, which may be longer than the model's positions."""
    tokenizer = checkpoint.tokenizer()

    def encode(text: str) -> list[int]:
        with silence():
            ids: list[int] = tokenizer(text).input_ids
        return ids

    return encode
