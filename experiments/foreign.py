"""Hydra's own launchers: what of theirs a config may set, and what a job takes along to where it runs."""

import multiprocessing
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

_QUEUE = ("timeout_min", "cpus_per_task", "gpus_per_node", "mem_gb")
_SLURM = (
    *("partition", "qos", "account", "comment", "constraint", "exclude", "gres", "array_parallelism", "signal_delay_s"),
    *("cpus_per_gpu", "gpus_per_task", "mem_per_gpu", "mem_per_cpu"),
)
_RAY = ("address", "num_cpus", "num_gpus", "cpus_per_series", "gpus_per_series")
ADDRESS = "address"  # of a cluster that this machine is in; any other comes from RAY_ADDRESS, never a config
ADDRESSES = ("auto", "local", None)


@dataclass(frozen=True)
class Foreign:
    """A launcher that sends jobs elsewhere: the module it needs, its extra, what may be set under hydra.launcher."""

    needs: str
    extra: str
    options: tuple[str, ...]


FOREIGN: Mapping[str, Foreign] = {
    "joblib": Foreign("hydra_plugins.hydra_joblib_launcher", "joblib", ("n_jobs",)),
    "ray": Foreign("ray", "ray", _RAY),
    "submitit_local": Foreign("hydra_plugins.hydra_submitit_launcher", "slurm", _QUEUE),
    "submitit_slurm": Foreign("hydra_plugins.hydra_submitit_launcher", "slurm", (*_QUEUE, *_SLURM)),
}


def check_installed(launcher: str) -> None:
    """ValueError if its package is not here."""
    foreign = FOREIGN[launcher]
    if find_spec(foreign.needs) is None:
        raise ValueError(
            f"hydra/launcher={launcher} needs a package that is not installed: pip install 'kvariants[{foreign.extra}]'"
        )


def options(launcher: str) -> tuple[str, ...]:
    """What may be set under hydra, by its dotted name."""
    return tuple(f"launcher.{name}" for name in FOREIGN[launcher].options) if launcher in FOREIGN else ()


def is_option(launcher: str, path: str, value: object) -> bool:
    """Whether ``hydra.<path>`` is one of them; ValueError if its value is no number and no words that are harmless."""
    if path not in options(launcher):
        return False
    if path == f"launcher.{ADDRESS}":
        if value not in ADDRESSES:
            raise ValueError(f"hydra.{path} must be auto, local or null (others: RAY_ADDRESS); got {value!r}")
    elif isinstance(value, str) and not re.fullmatch(r"[\w.,:=/+*()\[\]|&@% -]*", value, re.ASCII):
        raise ValueError(f"hydra.{path} may hold letters, digits and .,:=/+*()[]|&@%- only; got {value!r}")
    return value is None or isinstance(value, int | float | str)


@dataclass(frozen=True)
class Errand:
    """Where a command was typed, and how: a job runs as if it had been typed there.

    Launchers start jobs with arguments of their own, in other folders, and with fewer threads than the machine has, and
    that would change what is measured; joblib leaves a way to start processes that only joblib's own know.
    """

    folder: Path = field(default_factory=Path.cwd)
    arguments: tuple[str, ...] = field(default_factory=lambda: tuple(sys.argv))
    threads: Mapping[str, str] = field(default_factory=lambda: _thread_limits(os.environ))

    def arrive(self) -> None:
        """Make this process, in which torch is not yet loaded, one that was started so.

        Raises ValueError if the folder is not there: rows would be written to a place that nobody looks at.
        """
        if not self.folder.is_dir():
            raise ValueError(f"{self.folder} is not on this host; jobs need the folder that the command was typed in")
        os.chdir(self.folder)
        sys.argv = list(self.arguments)
        multiprocessing.set_start_method(None, force=True)
        for name in _thread_limits(os.environ):
            del os.environ[name]
        os.environ.update(self.threads)


def _thread_limits(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.endswith("_NUM_THREADS")}
