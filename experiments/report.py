"""The report door: ``python -m experiments.report runs=results/runs/quick`` writes ``results/reports/quick/``."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.door import CONF, Composed, open_door
from experiments.learned import LEARNED
from experiments.records import RECORDS
from experiments.scored import SCORED, Scored, read
from experiments.terminal import say

if TYPE_CHECKING:
    from experiments.telling.tell import Told

MODULE = "experiments.report"


def report(configs: Sequence[Composed], command: str) -> int:
    """Write the report each config asks for and print its summary; 0 on success.

    ``command`` is the line that reproduces it. Raises ValueError or FileNotFoundError, with nothing written.
    """
    for config in configs:
        _report(config.values, command)
    return 0


def main() -> None:
    """Console entry point."""
    # the door adds arguments of its own, so the line to repeat is taken down before it opens
    command = shlex.join(["python", "-m", MODULE, *map(_as_typed, sys.argv[1:])])
    open_door("report", lambda configs: report(configs, command))


def _report(values: Mapping[str, Any], command: str) -> None:
    if not values["runs"]:
        raise ValueError("runs must name the folder of a run, e.g. runs=results/runs/quick; got nothing")
    runs = Path(str(values["runs"]))
    out = Path(str(values["out"])) if values["out"] else Path("results", "reports", runs.resolve().name)
    if (runs / LEARNED).is_file():
        say(_of_learning(runs, out, command))
        return
    scores, warnings = _scores(runs, values["quality"])
    if scores and not values["quality"] and next(runs.rglob(RECORDS), None) is None:
        say("\n".join([*warnings, *_of_quality(scores, runs, out, command)]))
        return
    # pandas, matplotlib and jinja2 are only needed from here on, and `--help` is not to wait for them
    from experiments.foretold import foreteller
    from experiments.planned import planner
    from experiments.planning.others import other_weight_elements
    from experiments.telling.doubt import read_doubts
    from experiments.telling.evidence import read_evidence
    from experiments.telling.rule import Rule
    from experiments.telling.tell import Beside, tell

    rule = dict(values["report"])
    evidence = read_evidence(CONF / "evidence", rule.pop("evidence", None))
    doubts = read_doubts(CONF / "device")
    beside = Beside(evidence, other_weight_elements(), planner(CONF), foreteller(CONF), doubts, scores)
    told = tell(runs, out, Rule.parse(rule), command, beside)
    say("\n".join([*warnings, _closing(told)]))


def _scores(runs: Path, quality: object) -> tuple[list[Scored], list[str]]:
    """Rows of quality, of ``runs`` itself where no other folder is named, and a warning per line that is none.

    Raises ValueError if a folder is named and has none.
    """
    found, warnings = read(Path(str(quality)) if quality else runs)
    if quality and not found:
        raise ValueError(f"quality must be a folder with {SCORED} files below it; {quality} has no row")
    return list(found.values()), [f"warning: {w}" for w in warnings]


def _of_learning(runs: Path, out: Path, command: str) -> str:
    """The report of trainings; what they came to, and where it is."""
    from experiments.telling.learning import tell

    told = tell.tell(runs, out, command)
    return f"{told.summary}\nreport: {told.page}"


def _of_quality(scores: Sequence[Scored], runs: Path, out: Path, command: str) -> list[str]:
    """The report of rows of quality alone; the lines that say where it is."""
    from experiments.telling.judging.page import tell

    page, figures = tell(scores, runs, out, command)
    return [f"report: {page}", *(f"figure: {figure} (and .svg)" for figure in figures)]


def _as_typed(argument: str) -> str:
    """An argument as text even where the locale's encoding could not decode it (LC_ALL=C)."""
    return os.fsencode(argument).decode("utf-8", errors="replace")


def _closing(told: "Told") -> str:
    warnings = [f"warning: {w}" for w in told.warnings]
    figures = [f"figure: {path} (and .svg)" for path in told.figures]
    return "\n".join([told.summary, "", *warnings, f"report: {told.page} (and .html)", *figures])


if __name__ == "__main__":
    main()
