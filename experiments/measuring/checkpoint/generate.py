"""Greedy text, timed as a person waits for it: until the first token, and between one token and the next."""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from experiments.measuring.checkpoint.run import Run

QUANTILES = (50, 90, 99)


@dataclass(frozen=True)
class Generated:
    """New tokens and seconds: ``first_s`` from the prompt to the first of them, ``gaps_s`` from each to the next.

    What the listener does with a token is in no gap.
    """

    tokens: tuple[int, ...]
    first_s: float
    gaps_s: tuple[float, ...]

    @property
    def tokens_per_s(self) -> float | None:
        """How fast tokens follow the first; None if none does."""
        return len(self.gaps_s) / sum(self.gaps_s) if self.gaps_s else None

    def gap_ms(self, percent: int) -> float:
        """A percentile of the gaps."""
        return float(np.percentile(self.gaps_s, percent)) * 1e3


def greedy(
    run: Run,
    prompt: Sequence[int],
    most: int,
    ends: Collection[int] = (),
    listen: Callable[[int], None] = lambda token: None,
) -> Generated:
    """Up to ``most`` tokens after the prompt, the likeliest each time; one of ``ends`` is the last."""
    times: list[float] = []
    tokens: list[int] = []
    given = list(prompt)
    with torch.no_grad():
        while len(tokens) < most:
            start = time.perf_counter()
            tokens.append(int(run(torch.tensor([given]))[0, -1].argmax()))  # as a number: the device is waited for
            times.append(time.perf_counter() - start)
            listen(tokens[-1])
            if tokens[-1] in ends:
                break
            given = tokens[-1:]
    return Generated(tuple(tokens), times[0], tuple(times[1:]))


def warm_up(run: Run, prompt: Sequence[int], most: int) -> None:
    """The same steps once, over caches that are dropped then: what compiles or is read first is in no time."""
    greedy(run, prompt, min(most, 3))
