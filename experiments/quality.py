"""``study=quality``: convert a real checkpoint to each variant, distil it a little, score every step on held-out text.

Rows go to ``<results>/runs/<name>/quality.jsonl``, a table and a figure of them to ``<results>/reports/<name>``.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.alone import section
from experiments.door import Composed
from experiments.measuring.checkpoint.candidates import candidates, original
from experiments.measuring.checkpoint.corpus import Corpus, corpus, encoder, source
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.quality import Study, rows, sizes
from experiments.measuring.denormals import flushed
from experiments.measuring.device import find_device
from experiments.measuring.distil import Schedule
from experiments.plain import INTERRUPTED
from experiments.runfolder import locked, parse_resume, run_folder
from experiments.scored import Scored, append, read
from experiments.terminal import say
from variants.contract.checks import check_count
from variants.contract.dtype import Dtype

NAME = "quality"
COUNTS = ("window", "held_out", "calibration")
OPTIONS = ("checkpoint", "variants", *COUNTS, "distil", "seed", "dtype")
DISTIL = ("steps", "windows", "learning_rate")


def launch(configs: Sequence[Composed], command: str) -> int:
    """Score what the run's one config asks for and tell of it; 0, or 130 if it was interrupted.

    Raises ValueError or OSError, in one line, for what cannot be. A row that is there is not computed again, unless
    ``resume`` is all; none: nothing may be there.
    """
    asked, run = section(configs, NAME), configs[0].values
    folder, resume = run_folder(run["results"], run["name"]), parse_resume(run["resume"])
    _check(asked)
    try:
        _progress(f"loading {asked['checkpoint']} ...")
        checkpoint = load(asked["checkpoint"], Dtype.parse(asked["dtype"]))
        study = _study(asked, checkpoint, folder, command)
        with locked(folder), flushed():
            warnings = _fill(study, resume)
        for line in (*(f"warning: {w}" for w in warnings), *_told(folder, Path(str(run["results"])), str(run["name"]))):
            say(line)
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    return 0


def _check(asked: Mapping[str, Any]) -> None:
    """ValueError for what needs no checkpoint to be wrong."""
    _fields(NAME, asked, OPTIONS)
    _fields(f"{NAME}.distil", asked["distil"], DISTIL)
    for name in COUNTS:
        check_count(f"{NAME}.{name}", asked[name])
    if asked["window"] < 2:
        said = f"{NAME}.window must be >= 2, for the first token of each is foretold by nothing"
        raise ValueError(f"{said}; got {asked['window']}")
    if not (asked["variants"] is None or isinstance(asked["variants"], list)):
        said = f"{NAME}.variants must be a list such as [mha,mqa,mla-96-32], or null"
        raise ValueError(f"{said}; got {asked['variants']!r}")
    if isinstance(asked["seed"], bool) or not isinstance(asked["seed"], int) or asked["seed"] < 0:
        raise ValueError(f"{NAME}.seed must be a whole number >= 0; got {asked['seed']!r}")
    _schedule(asked)
    here = find_device("cpu")
    assert here is not None
    if reasons := here.refuses(Dtype.parse(asked["dtype"])):
        raise ValueError("; ".join(reasons))


def _fields(name: str, given: object, wanted: Sequence[str]) -> None:
    if not isinstance(given, Mapping) or set(given) != set(wanted):
        got = ", ".join(map(str, given)) if isinstance(given, Mapping) else repr(given)
        raise ValueError(f"{name} must have exactly the options {', '.join(wanted)}; got {got}")


def _schedule(asked: Mapping[str, Any]) -> Schedule | None:
    """How lossy layers are trained; None where ``distil.steps`` is 0."""
    steps = asked["distil"]["steps"]
    if steps == 0 and not isinstance(steps, bool):
        return None
    check_count(f"{NAME}.distil.windows", asked["distil"]["windows"])
    check_count(f"{NAME}.distil.steps", steps)
    # saved once per layer: a layer takes seconds, and whoever stops us loses no more
    return Schedule(steps, asked["distil"]["learning_rate"], asked["seed"], save_every=steps)


def _study(asked: Mapping[str, Any], checkpoint: Checkpoint, folder: Path, command: str) -> Study:
    if asked["window"] > checkpoint.most_tokens:
        most = checkpoint.most_tokens
        raise ValueError(f"{NAME}.window must be at most the model's {most} positions; got {asked['window']}")
    return Study(
        checkpoint=checkpoint,
        original=original(checkpoint),
        candidates=tuple(candidates(checkpoint, asked["variants"])),
        corpus=_corpus(asked, checkpoint),
        schedule=_schedule(asked),
        seed=asked["seed"],
        folder=folder,
        command=command,
    )


def _corpus(asked: Mapping[str, Any], checkpoint: Checkpoint) -> Corpus:
    training = asked["distil"]["windows"] if asked["distil"]["steps"] else 0
    return corpus(encoder(checkpoint), asked["window"], asked["held_out"], asked["calibration"], training)


def _fill(study: Study, resume: str) -> list[str]:
    """All rows, each written as soon as it is there; warnings about lines of the file that are none."""
    known, warnings = read(study.folder)
    if known and resume == "none":
        raise ValueError(
            f"{study.folder} already holds rows of quality, and resume=none; choose a folder with name=... or go on "
            "with resume=missing"
        )
    if resume == "all":
        known = {}
    text = study.corpus
    parts = {"held out": text.held_out, "calibration": text.calibration, "training": text.training}
    said = ", ".join(f"{name} {sizes(part)}" for name, part in parts.items())
    say(f"{study.checkpoint.source.name} on {source()}: {said}")
    for row in rows(study, known, _progress):
        if row.key not in known:
            append(study.folder, row)
        _say_row(row, again=row.key in known)
    return warnings


def _say_row(row: Scored, again: bool) -> None:
    after = f" after {row.steps} steps per layer" if row.steps else ""
    took = "as it was" if again else f"{row.seconds:.0f} s"
    say(f"{row.label}{after}: perplexity {row.perplexity:.3f}, KL {row.divergence:.4f}, {took}")


def _told(folder: Path, results: Path, name: str) -> list[str]:
    """Write the report, as the report door would; the lines that say where."""
    from experiments.telling.judging.page import tell  # matplotlib is needed from here on

    again = shlex.join(["python", "-m", "experiments.report", f"runs={folder}"])
    page, figures = tell(list(read(folder)[0].values()), folder, results / "reports" / name, again)
    return [f"report: {page}", *(f"figure: {figure} (and .svg)" for figure in figures)]


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(line, file=sys.stderr)
