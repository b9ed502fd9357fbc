"""Train what is not there yet, store every training as it ends, and tell what was learned."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from experiments import learned
from experiments.alone import section
from experiments.door import CONF, Composed
from experiments.learned import Training
from experiments.measuring.device import find_device
from experiments.measuring.learning.job import Job, Said, jobs, labels
from experiments.measuring.learning.lesson import Lesson
from experiments.measuring.learning.pool import learn_all
from experiments.plain import INTERRUPTED, UNCLEAN
from experiments.planning.configs import yamls
from experiments.runfolder import locked, parse_resume, run_folder
from experiments.telling.learning.tell import tell
from experiments.terminal import say


def launch(configs: Sequence[Composed], command: str) -> int:
    """Run the trainings of one config and write their report; 0 all ended well, 3 some did not, 130 interrupted.

    Raises ValueError or OSError, before anything is written, for what cannot be trained.
    """
    asked = dict(section(configs, "learning"))
    values = configs[0].values
    known = yamls(CONF / "attention")
    variants = {}
    for label, (name, options) in labels(asked.pop("attention", None)).items():
        if name not in known:
            raise ValueError(f"learning.attention must be of {', '.join(known)}; got {name!r}")
        variants[label] = {**known[name], **options}
    baseline = str(asked.pop("baseline", None))
    lesson = Lesson.parse(asked)
    wanted = jobs(lesson, variants, baseline)
    device = find_device(lesson.device)
    if device is None:
        raise ValueError(f"learning.device={lesson.device} is not on this machine; choose learning.device=cpu")
    folder, resume = run_folder(values["results"], values["name"]), parse_resume(values["resume"])
    workers = lesson.workers or (1 if device.kind == "cuda" else min(device.cores, len(wanted)))
    threads = torch.get_num_threads() if workers == 1 else 1
    said = Said(str(configs[0].choices.get("study")), command, device, threads)
    with locked(folder):
        return _train(folder, wanted, said, workers, resume)


def _train(folder: Path, wanted: Sequence[Job], said: Said, workers: int, resume: str) -> int:
    rows, warnings = learned.read(folder)
    for warning in warnings:
        _note(f"warning: {warning}")
    if resume == "none" and (there := [job for job in wanted if job.key in rows]):
        raise ValueError(f"{folder} already holds {len(there)} of these trainings, and resume=none; give another name=")
    left = [job for job in wanted if not _settled(rows.get(job.key), resume)]
    _note(f"trainings: {len(wanted) - len(left)} are there, {len(left)} to run, {workers} at once")
    try:
        for number, (job, row) in enumerate(learn_all(left, said, workers), start=1):
            learned.append(folder, row)
            rows[job.key] = row
            _note(f"[{number}/{len(left)}] {_told(row)}")
    except KeyboardInterrupt:
        _note(f"interrupted; what has ended is in {folder}, and the same command goes on from there")
        return INTERRUPTED
    told = tell(folder, folder.parent.parent / "reports" / folder.name, _again(folder))
    say(told.summary)
    say(f"report: {told.page}")
    return UNCLEAN if any(rows[job.key].status != "ok" for job in wanted) else 0


def _settled(row: Training | None, resume: str) -> bool:
    if row is None or resume == "all":
        return False
    return row.status == "ok" or resume != "failed"


def _told(row: Training) -> str:
    outcome = f"loss {row.loss:.3f}, accuracy {row.accuracy:.3f}" if row.status == "ok" else str(row.reason)
    return f"{row.attention}, {row.task}, seed {row.seed}: {outcome}" + (
        f", {row.seconds:.0f} s" if row.seconds else ""
    )


def _again(folder: Path) -> str:
    return shlex.join(["python", "-m", "experiments.report", f"runs={folder}"])


def _note(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
