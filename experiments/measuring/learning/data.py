"""The batches of a task: a pure function of task, seed and step, and so the same for every variant."""

import hashlib

import numpy as np

from experiments.measuring.learning import text
from experiments.measuring.learning.lesson import Lesson, Recall, Text
from experiments.measuring.learning.recall import Batch, sequences

HELD_OUT_SEED = 2**31  # no training seed is as large


def batch(lesson: Lesson, task: str, seed: int, step: int) -> Batch:
    """What is trained on in a step: new sequences, or windows anywhere in the training text."""
    sizes, random = lesson.task(task), np.random.default_rng((seed, step))
    if isinstance(sizes, Recall):
        return sequences(sizes, sizes.batch, random)
    train, _ = text.corpus()
    return text.windows(train, random.integers(0, _places(train, sizes), sizes.batch), sizes.context)


def held_out(lesson: Lesson, task: str) -> list[Batch]:
    """What all variants and seeds are judged by: recall of other sequences; text evenly over the held-out topics."""
    sizes = lesson.task(task)
    if isinstance(sizes, Recall):
        inputs, targets = sequences(sizes, sizes.held_out, np.random.default_rng((HELD_OUT_SEED, 0)))
    else:
        _, rest = text.corpus()
        starts = np.linspace(0, _places(rest, sizes) - 1, sizes.held_out).astype(np.int64)
        inputs, targets = text.windows(rest, starts, sizes.context)
    return list(zip(inputs.split(sizes.batch), targets.split(sizes.batch), strict=True))


def digest(lesson: Lesson, task: str, seed: int) -> str:
    """A hash of the first and the last batch and of what is held out: rows that agree saw the same data."""
    told = hashlib.sha256()
    ends = [batch(lesson, task, seed, step) for step in (0, lesson.task(task).steps - 1)]
    for inputs, targets in (*ends, *held_out(lesson, task)):
        told.update(inputs.numpy().tobytes())
        told.update(targets.numpy().tobytes())
    return told.hexdigest()[:16]


def _places(corpus: bytes, sizes: Text) -> int:
    """How many windows a text has; ValueError if none."""
    if (places := len(corpus) - sizes.context) < 1:
        raise ValueError(f"text.context must be < {len(corpus)}, the bytes of the shorter part; got {sizes.context}")
    return places
