"""Layer-wise distillation: train a converted layer until it gives what the original gives, on the same hidden states.

The layer alone is trained, on what the original's model feeds it: no logits, no other layer, minutes instead of days.
What Ainslie et al. 2023 (arXiv 2305.13245, section 2.1) call uptraining trains the whole model on; this is its cheap
first part. A run that is interrupted goes on from its file and ends where it would have, bit for bit on one machine.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from variants.contract.checks import check_count, check_number
from variants.protocols import Attention

MOMENTS = ("exp_avg", "exp_avg_sq", "step")  # what Adam keeps of each weight


@dataclass(frozen=True)
class Schedule:
    """How to train: Adam over ``steps`` batches, each epoch in an order of its own; the rate falls linearly to zero."""

    steps: int
    learning_rate: float = 1e-3
    seed: int = 0
    save_every: int = 50

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("save_every", self.save_every)
        check_number("learning_rate", self.learning_rate)


@dataclass
class Run:
    """A student under training. ``losses[i]``: step i's squared error over the teacher's squared outputs, before it."""

    student: nn.Module
    optimiser: torch.optim.Adam
    losses: list[float] = field(default_factory=list)

    @property
    def weights(self) -> dict[str, nn.Parameter]:
        """All of them, by name."""
        return dict(self.student.named_parameters())


def distil(
    teacher: Attention,
    student: Attention,
    batches: Sequence[Float[Tensor, "B T D"]],
    schedule: Schedule,
    path: Path | None = None,
    until: int | None = None,
) -> list[float]:
    """Train ``student`` in place towards ``teacher``'s outputs on ``batches``; the loss of every step.

    ``path``: a safetensors file that is written as the run goes on, and from which it goes on if it is there;
    ``until`` ends this call after so many steps, to be gone on with later. The student's weights need no gradient
    afterwards. Raises ValueError where the file is of another run, the loss is not a number, or nothing can be trained.
    """
    if not isinstance(student, nn.Module) or not batches:
        raise ValueError("distil needs a student with weights and at least one batch; got none")
    student.requires_grad_(True)
    run = Run(student, torch.optim.Adam(student.parameters(), schedule.learning_rate))
    stamp = _stamp(teacher, student, schedule, batches)
    if path is not None and path.exists():
        _load(run, path, stamp)
    last = schedule.steps if until is None else min(until, schedule.steps)
    for step in range(len(run.losses), last):
        _train(run, teacher, student, batches[_turn(step, len(batches), schedule.seed)], schedule, step)
        if path is not None and (step + 1 == last or (step + 1) % schedule.save_every == 0):
            _save(run, path, stamp)
    student.requires_grad_(False)
    return run.losses


def _train(run: Run, teacher: Attention, student: Attention, x: Tensor, schedule: Schedule, step: int) -> None:
    with torch.no_grad():
        wanted = teacher.reference(x)
    with torch.enable_grad():
        loss = (student.reference(x) - wanted).square().sum() / wanted.square().sum()
        if not loss.isfinite():
            raise ValueError(f"the loss is {loss.item()} at step {step}: lower learning_rate={schedule.learning_rate}")
        run.optimiser.zero_grad()
        loss.backward()
    for group in run.optimiser.param_groups:
        group["lr"] = schedule.learning_rate * (1 - step / schedule.steps)
    run.optimiser.step()
    run.losses.append(loss.item())


def _turn(step: int, batches: int, seed: int) -> int:
    """Which batch a step takes: a pure function of step and seed, so that nothing of it need be saved."""
    epoch, place = divmod(step, batches)
    order = torch.randperm(batches, generator=torch.Generator().manual_seed(1_000_003 * seed + epoch))
    return int(order[place])


def _stamp(teacher: Attention, student: Attention, schedule: Schedule, batches: Sequence[Tensor]) -> str:
    """What a saved run must agree on to be gone on with: sizes, schedule, the teacher's weights, the first batch."""
    numbers = {"teacher": repr(teacher.spec), "student": repr(student.spec), "batches": len(batches)}
    told = hashlib.sha256(json.dumps(numbers | asdict(replace(schedule, save_every=1))).encode())
    weights = teacher.state_dict().values() if isinstance(teacher, nn.Module) else ()
    for tensor in (*weights, batches[0]):
        told.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return told.hexdigest()


def _state(run: Run) -> Iterator[tuple[str, Tensor]]:
    """Everything that the next step depends on, by a name per tensor."""
    for name, weight in run.weights.items():
        yield f"weight.{name}", weight.detach()
        for moment in MOMENTS:
            yield f"{moment}.{name}", run.optimiser.state[weight][moment]
    yield "losses", torch.tensor(run.losses, dtype=torch.float64)


def _save(run: Run, path: Path, stamp: str) -> None:
    """Replace the file in one move: whoever stops us leaves the old one or the new one."""
    from safetensors.torch import save

    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(path.name + ".part")
    with written.open("wb") as file:
        file.write(save({name: tensor.contiguous() for name, tensor in _state(run)}, {"run": stamp}))
        file.flush()
        os.fsync(file.fileno())
    written.replace(path)


def _load(run: Run, path: Path, stamp: str) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
            of_run = (file.metadata() or {}).get("run")
    except SafetensorError as error:
        raise ValueError(f"{path} must be a distillation's safetensors file; got {error}: remove it") from None
    if of_run != stamp:
        raise ValueError(f"{path} is of a run with other layers, schedule or batches: remove it or name another file")
    for name, weight in run.weights.items():
        weight.data.copy_(held[f"weight.{name}"])
        run.optimiser.state[weight] = {moment: held[f"{moment}.{name}"] for moment in MOMENTS}
        for moment in MOMENTS[:2]:
            run.optimiser.state[weight][moment] = run.optimiser.state[weight][moment].to(weight.device)
    run.losses.extend(held["losses"].tolist())
