"""One training: a variant on a task from a seed, to the loss and accuracy on what it has not seen."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.measuring.learning.data import batch, digest, held_out
from experiments.measuring.learning.decoder import Decoder
from experiments.measuring.learning.lesson import Lesson, rate
from experiments.measuring.learning.match import Matched
from experiments.measuring.learning.recall import NO_TARGET, Batch

CLIP = 1.0  # norm of all gradients together
BETAS = (0.9, 0.95)


@dataclass(frozen=True)
class Judged:
    """What a decoder makes of held-out data after so many steps: nats per target, and the share it got right."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Learned:
    """How a training went; ``data``: a hash of what it saw."""

    curve: tuple[Judged, ...]
    data: str
    seconds: float


class Diverged(ValueError):
    """The loss is no number any more."""


def train(lesson: Lesson, matched: Matched, task: str, seed: int) -> Learned:
    """Train and judge: before the first step, after the last, and evenly in between.

    Raises Diverged if the loss is not finite.
    """
    began = time.perf_counter()
    sizes, device = lesson.task(task), torch.device(lesson.device)
    model = Decoder(lesson.model, matched.spec, matched.mlp_width, sizes.vocabulary, seed)
    found = sum(weight.numel() for weight in model.parameters())
    if found != matched.parameters:
        raise ValueError(
            f"the decoder must have the parameters it was matched by; got {found}, not {matched.parameters}"
        )
    model.to(device)
    unseen = [_on(device, one) for one in held_out(lesson, task)]
    curve = tuple(_lessons(lesson, model, task, seed, unseen))
    return Learned(curve, digest(lesson, task, seed), time.perf_counter() - began)


def _lessons(
    lesson: Lesson, model: Decoder, task: str, seed: int, unseen: list[tuple[Tensor, Tensor]]
) -> Iterator[Judged]:
    """Go through all steps; what the decoder is worth at each stop."""
    steps, device = lesson.task(task).steps, unseen[0][0].device
    stops = {round(steps * n / lesson.evaluations) for n in range(lesson.evaluations + 1)}
    optimiser = torch.optim.AdamW(_groups(model, lesson.weight_decay), lr=0.0, betas=BETAS)
    for step in range(steps):
        if step in stops:
            yield judge(model, unseen, step)
        for group in optimiser.param_groups:
            group["lr"] = rate(lesson, task, step)
        inputs, targets = _on(device, batch(lesson, task, seed, step))
        optimiser.zero_grad()
        _loss(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
    yield judge(model, unseen, steps)


@torch.no_grad()
def judge(model: nn.Module, unseen: list[tuple[Tensor, Tensor]], step: int) -> Judged:
    """Mean loss and accuracy over all held-out targets."""
    loss = right = asked = 0.0
    for inputs, targets in unseen:
        logits, mask = model(inputs), targets != NO_TARGET
        count = int(mask.sum())
        loss += float(_loss(logits, targets)) * count
        right += float((logits.argmax(-1) == targets)[mask].sum())
        asked += count
    if loss != loss or loss == float("inf"):
        raise Diverged(f"the loss is not finite at step {step}: lower the learning rate")
    return Judged(step, loss / asked, right / asked)


def _loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy in nats, over the places that have a target."""
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=NO_TARGET)


def _groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    """Matrices decay; norms do not."""
    weights = list(model.parameters())
    return [
        {"params": [w for w in weights if w.ndim > 1], "weight_decay": decay},
        {"params": [w for w in weights if w.ndim < 2], "weight_decay": 0.0},
    ]


def _on(device: torch.device, one: Batch) -> Batch:
    return one[0].to(device), one[1].to(device)
