"""The quality study: a checkpoint as each candidate, before and after a short distillation, scored on held-out text."""

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from experiments.measuring.checkpoint.candidates import Candidate
from experiments.measuring.checkpoint.conversion import replaced
from experiments.measuring.checkpoint.corpus import Corpus, Part, source
from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.passing import Converted, visited
from experiments.measuring.checkpoint.score import Score, score
from experiments.measuring.device import find_device
from experiments.measuring.distil import Schedule, distil
from experiments.record import utc_now
from experiments.scored import LOSSES, Scored, perplexity, score_key
from variants.contract.identity import identity_of
from variants.protocols import Attention
from variants.view import DTYPES

UNDER_WAY = "under-way"
SAMPLED = 4096  # numbers of each weight that tell a checkpoint from another

Say = Callable[[str], None]


@dataclass(frozen=True)
class Study:
    """What is scored on what. ``schedule``: of the distillation of each lossy layer; None: there is none.

    ``folder``: where loss curves go, and the files from which an interrupted distillation goes on.
    """

    checkpoint: Checkpoint
    original: Candidate
    candidates: tuple[Candidate, ...]
    corpus: Corpus
    schedule: Schedule | None
    seed: int
    folder: Path
    command: str

    @property
    def training_tokens(self) -> int:
        """What a distillation sees of each layer's inputs."""
        return self.corpus.training.tokens if self.schedule else 0


def rows(study: Study, known: Mapping[str, Scored], say: Say = lambda line: None) -> Iterator[Scored]:
    """Every row, in order, the known ones as they are; each other is computed when it is asked for."""
    fingerprint = fingerprint_of(study.checkpoint)
    for candidate in (study.original, *study.candidates):
        yield from _of_candidate(study, candidate, known, fingerprint, say)


def fingerprint_of(checkpoint: Checkpoint) -> str:
    """What tells these weights from others: names, shapes and the first numbers of each."""
    told = hashlib.sha256()
    for name, weight in checkpoint.model.state_dict().items():
        told.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        told.update(weight.detach().flatten()[:SAMPLED].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return told.hexdigest()[:16]


def _of_candidate(
    study: Study, candidate: Candidate, known: Mapping[str, Scored], fingerprint: str, say: Say
) -> Iterator[Scored]:
    """The row of a candidate as it is converted, and if that loses anything the row of what it has learnt."""
    before, after = (_key(study, candidate, fingerprint, schedule) for schedule in (None, study.schedule))
    made: Converted | None = None
    started = time.perf_counter()
    if before in known:
        yield known[before]
        exact = known[before].exact
    else:
        say(f"{candidate.label}: converting and scoring")
        made = _converted(study, candidate)
        exact = made.exact
        yield _row(study, candidate, before, made, _scored(study, made.attentions), started)
    if exact or study.schedule is None:
        return
    if after in known:
        yield known[after]
        return
    started = time.perf_counter()
    made = made or _converted(study, candidate)
    losses = _distilled(study, made, after, say, candidate.label)
    row = _row(study, candidate, after, made, _scored(study, made.attentions), started, losses)
    _keep(study.folder / LOSSES / f"{after}.npy", losses)
    yield row
    shutil.rmtree(study.folder / UNDER_WAY / after, ignore_errors=True)  # the row is written: nothing to go on with


def _converted(study: Study, candidate: Candidate) -> Converted:
    return replaced(study.checkpoint, candidate.targets, lambda: study.corpus.calibration.windows)


def _scored(study: Study, attentions: tuple[Attention, ...]) -> Score:
    return score(study.checkpoint, attentions, study.corpus.held_out.windows)


def _distilled(study: Study, made: Converted, key: str, say: Say, label: str) -> NDArray[np.float64]:
    """Train every layer in place on what the original's sees; losses [layers, steps]."""
    assert study.schedule is not None
    schedule, folder = study.schedule, study.folder / UNDER_WAY / key
    losses: list[list[float]] = []

    def visit(number: int, x: torch.Tensor) -> None:
        own, student = study.checkpoint.attentions[number], made.attentions[number]
        found = distil(own, student, x.split(1), schedule, folder / f"{number}.safetensors")
        say(f"{label}: layer {number + 1} of {len(made.attentions)}, loss {found[0]:.3g} to {found[-1]:.3g}")
        losses.append(found)

    visited(study.checkpoint, study.corpus.training.windows, visit)
    return np.array(losses)


def _keep(path: Path, losses: NDArray[np.float64]) -> None:
    """Write a loss curve, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    held = BytesIO()
    np.save(held, losses)
    part = path.with_suffix(".part")
    part.write_bytes(held.getvalue())
    part.replace(path)


def _key(study: Study, candidate: Candidate, fingerprint: str, schedule: Schedule | None) -> str:
    lossy = candidate != study.original
    learns: dict[str, Any] = {}
    if schedule:  # how often it is saved decides nothing
        learns = {"schedule": asdict(replace(schedule, save_every=1)), "training": study.corpus.training.digest}
    return score_key(
        {
            "weights": fingerprint,
            "targets": [identity_of(spec) for spec in candidate.targets],
            "held_out": study.corpus.held_out.digest,
            "calibration": study.corpus.calibration.digest if lossy else None,
            **learns,
        }
    )


def _row(
    study: Study,
    candidate: Candidate,
    key: str,
    made: Converted,
    found: Score,
    started: float,
    losses: NDArray[np.float64] | None = None,
) -> Scored:
    model, schedule = study.checkpoint.model, study.schedule if losses is not None else None
    dtype = DTYPES[model.dtype]
    return Scored(
        key=key,
        checkpoint=study.checkpoint.source.name,
        note=study.checkpoint.note,
        attention=candidate.attention,
        label=candidate.label,
        method=made.method,
        exact=made.exact,
        layers=len(candidate.targets),
        bytes_per_token=float(candidate.bytes_per_token(dtype)),
        dtype=dtype.value,
        corpus=source(),
        window=study.corpus.held_out.windows.shape[1],
        nll=found.nll,
        kl=found.kl,
        perplexity=perplexity(found.nll),
        divergence=sum(found.kl) / len(found.kl),
        layer_error=made.error,
        calibration_tokens=0 if made.exact else study.corpus.calibration.tokens,
        training_tokens=study.training_tokens if schedule else 0,
        steps=schedule.steps if schedule else 0,
        learning_rate=schedule.learning_rate if schedule else None,
        loss_first=None if losses is None else float(losses[:, 0].mean()),
        loss_last=None if losses is None else float(losses[:, -1].mean()),
        seed=study.seed,
        seconds=time.perf_counter() - started,
        **_machine(study),
    )


def _machine(study: Study) -> dict[str, Any]:
    device = find_device("cpu")
    assert device is not None
    return {
        "device": device.name,
        "threads": torch.get_num_threads(),
        "versions": device.versions,
        "commit": device.commit,
        "command": study.command,
        "started_at": utc_now(),
    }


def sizes(part: Part) -> str:
    """How much text it is: ``8,192 tokens of 12 topics``."""
    return f"{part.tokens:,} tokens of {len(part.topics)} topics"
