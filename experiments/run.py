"""Measure: ``python -m experiments.run study=quick``, or ``attention=mla backend=sdpa 'workload.context=[1k,8k]'``."""

import shlex
import sys
from collections.abc import Callable, Sequence

from experiments.door import Composed, open_door

ASKS = ("latency", "quality", "learning")
Launch = Callable[[Sequence[Composed], str], int]


def run(configs: Sequence[Composed]) -> int:
    """Find out what the run asks for; the exit code says whether all rows are clean."""
    return _launch(_asks(configs))(configs, _command())


def check(configs: Sequence[Composed]) -> None:
    """ValueError if these configs cannot be the jobs of one run."""
    from experiments.launcher import check_jobs

    if (asks := _asks(configs)) != "latency":
        raise ValueError(f"other launchers send series of measurements elsewhere; this run asks for {asks}")
    check_jobs(configs)


def _asks(configs: Sequence[Composed]) -> str:
    """What all of the configs ask for."""
    asks = {str(config.values["asks"]) for config in configs}
    if len(asks) != 1 or not asks <= set(ASKS):
        raise ValueError(f"asks must be one of {', '.join(ASKS)}, for all of a run; got {', '.join(sorted(asks))}")
    return asks.pop()


def _launch(asks: str) -> Launch:
    """Imported here: ``--help`` is not to wait for torch."""
    if asks == "quality":
        from experiments import quality

        return quality.launch
    if asks == "learning":
        from experiments import learning

        return learning.launch
    from experiments.launcher import launch

    return launch


def _command() -> str:
    """The line that reproduces this run."""
    return shlex.join(["python", "-m", "experiments.run", *sys.argv[1:]])


def main() -> None:
    """Entry point of ``kvariants-run``."""
    open_door("config", run, check)


if __name__ == "__main__":
    main()
