"""Measure: ``python -m experiments.run study=quick``, or ``attention=mla backend=sdpa 'workload.context=[1k,8k]'``."""

import shlex
import sys
from collections.abc import Sequence

from experiments.door import Composed, open_door


def run(configs: Sequence[Composed]) -> int:
    """Measure every series of the run; the exit code says whether all rows are clean."""
    from experiments.launcher import launch  # torch: not needed for --help

    return launch(configs, _command())


def check(configs: Sequence[Composed]) -> None:
    """ValueError if these configs cannot be the jobs of one run."""
    from experiments.launcher import check_jobs

    check_jobs(configs)


def _command() -> str:
    """The line that reproduces this run."""
    return shlex.join(["python", "-m", "experiments.run", *sys.argv[1:]])


def main() -> None:
    """Entry point of ``kvariants-run``."""
    open_door("config", run, check)


if __name__ == "__main__":
    main()
