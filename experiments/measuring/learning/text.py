"""Real text that every Python has: the help topics of ``pydoc``, as bytes, some topics held out."""

import hashlib
from functools import cache
from pydoc_data.topics import topics

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

HELD_OUT = 0.2  # of the topics, about


@cache
def corpus() -> tuple[bytes, bytes]:
    """Topics to train on and topics to be judged by, each one after the other in the order of their names.

    A hash of a topic's name decides, so that a topic stays where it is when others come and go. A text that stands
    under a name of either side is never on both.
    """
    train: list[bytes] = []
    held_out: list[bytes] = []
    for name, text in sorted(topics.items()):
        (held_out if _share(name) < HELD_OUT else train).append(text.encode())
    known = set(train)
    return b"\n".join(train), b"\n".join(text for text in held_out if text not in known)


def windows(text: bytes, starts: np.ndarray, context: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
    """``context`` bytes from each start, and for each the byte after it."""
    whole = np.frombuffer(text, dtype=np.uint8)[starts[:, None] + np.arange(context + 1)].astype(np.int64)
    return torch.from_numpy(whole[:, :-1].copy()), torch.from_numpy(whole[:, 1:].copy())


def _share(name: str) -> float:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") / 2**64
