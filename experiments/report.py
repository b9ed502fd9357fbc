"""The report door: ``python -m experiments.report runs=results/runs/quick`` writes ``results/reports/quick/``."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.door import CONF, Composed, open_door
from experiments.learned import LEARNED
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
        from experiments.telling.learning import tell as learning

        told = learning.tell(runs, out, command)
        say(f"{told.summary}\nreport: {told.page}")
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
    beside = Beside(evidence, other_weight_elements(), planner(CONF), foreteller(CONF), read_doubts(CONF / "device"))
    say(_closing(tell(runs, out, Rule.parse(rule), command, beside)))


def _as_typed(argument: str) -> str:
    """An argument as text even where the locale's encoding could not decode it (LC_ALL=C)."""
    return os.fsencode(argument).decode("utf-8", errors="replace")


def _closing(told: "Told") -> str:
    warnings = [f"warning: {w}" for w in told.warnings]
    figures = [f"figure: {path} (and .svg)" for path in told.figures]
    return "\n".join([told.summary, "", *warnings, f"report: {told.page} (and .html)", *figures])


if __name__ == "__main__":
    main()
