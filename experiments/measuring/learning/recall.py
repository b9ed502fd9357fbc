"""Multi-query associative recall (MQAR): keys with their values, then some keys again, whose values are to be said.

    inputs   k1 v1 k2 v2 ... kP vP  .  k2 .  k1 ...    a dot: any token
    targets                            v2    v1        none elsewhere

Keys and values have tokens of their own; in a sequence no key and no value comes twice. Every key is asked for once, at
an even place, g pairs of places after the last pair; of g >= 0 small ones are likelier, by (g + 1)^(power - 1), drawn
without replacement. Places that are left hold random tokens.

Source: Arora et al. 2023, "Zoology: Measuring and Improving Recall in Efficient Language Models" (arXiv 2312.04927),
section 3 and appendix. Differs: a vocabulary of its own size for keys and for values; every batch is new; noise is
drawn with replacement and may hold keys, as theirs may.
"""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from experiments.measuring.learning.lesson import Recall

NO_TARGET = -100
Batch = tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]


def sequences(sizes: Recall, count: int, random: np.random.Generator) -> Batch:
    """``count`` sequences and their targets; ``NO_TARGET`` where nothing is asked."""
    pairs, asked = sizes.pairs, (sizes.context - 2 * sizes.pairs) // 2
    keys = _distinct(np.ones(sizes.keys), pairs, count, random)
    values = sizes.keys + _distinct(np.ones(sizes.values), pairs, count, random)
    gaps = _distinct(np.arange(1, asked + 1) ** (sizes.power - 1.0), pairs, count, random)
    inputs = random.integers(0, sizes.vocabulary, (count, sizes.context))
    inputs[:, 0 : 2 * pairs : 2] = keys
    inputs[:, 1 : 2 * pairs : 2] = values
    targets = np.full_like(inputs, NO_TARGET)
    np.put_along_axis(inputs, 2 * (pairs + gaps), keys, axis=1)
    np.put_along_axis(targets, 2 * (pairs + gaps), values, axis=1)
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def _distinct(weights: np.ndarray, size: int, count: int, random: np.random.Generator) -> np.ndarray:
    """``size`` different indices per row, [count, size], as if drawn one after the other by ``weights``.

    The largest of log weight + Gumbel noise are such a draw (Kool et al. 2019, arXiv 1903.06059).
    """
    noise = random.gumbel(size=(count, len(weights))) + np.log(weights)
    return np.argsort(-noise, axis=1)[:, :size]
