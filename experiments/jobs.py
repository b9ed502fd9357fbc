"""What a run was asked for: one way to run all of it, and per config a series, or why there is none."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from experiments.door import Composed
from experiments.measuring.crew import Conduct
from experiments.measuring.series import Labels, Series, parse_labels, parse_series
from experiments.predicted import predictable
from experiments.runfolder import parse_resume, run_folder
from experiments.shard import Shard, part_folder

DEFAULTS = {"resume": "missing", "fail_fast": False, "plan": False, "shard": None, "exclusive": True}
ONE_RUN = ("name", "results", "isolation", "timeout_s", "race_size", *DEFAULTS)  # a run has one of each


@dataclass(frozen=True)
class Orders:
    """How to run. ``plan``: say what would run, and run nothing.

    ``shard``: the part of the points that is this run's; ``job``: the number of a sweep's job that another launcher
    sent here alone. ``exclusive``: wait until nobody else is timed on the device.
    """

    folder: Path
    conduct: Conduct
    resume: str
    fail_fast: bool
    plan: bool
    shard: Shard | None = None
    exclusive: bool = True
    job: int | None = None

    @property
    def part(self) -> Path:
        """The folder that this run writes to, alone: the run's own, or one below it."""
        return self.part_of(self.job)

    def part_of(self, job: int | None) -> Path:
        """The folder that a job of this run writes to."""
        return self.folder / part_folder(self.shard, job)

    @classmethod
    def parse(cls, configs: Sequence[Composed]) -> Self:
        """From what all configs of a run must agree on; ValueError if they do not, or if it cannot be."""
        common = _common(configs)
        return cls(
            run_folder(common["results"], common["name"]),
            Conduct(common["isolation"], common["timeout_s"], common["race_size"]),
            parse_resume(common["resume"]),
            _switch("fail_fast", common["fail_fast"]),
            _switch("plan", common["plan"]),
            Shard.parse(common["shard"]),
            _switch("exclusive", common["exclusive"]),
            configs[0].job,
        )


@dataclass(frozen=True)
class Unbuildable:
    """A config of a sweep that cannot become a series."""

    labels: Labels
    config: Composed
    reason: str


def build(configs: Sequence[Composed], command: str) -> list[Series | Unbuildable]:
    """A job per config; ValueError, in the words of the first, if no config at all can become a series.

    One that another launcher has sent here alone is not all: that it cannot is a row.
    """
    jobs = [_build(config, command) for config in configs]
    broken = [job for job in jobs if isinstance(job, Unbuildable)]
    if len(broken) == len(jobs) and configs[0].job is None:
        raise ValueError(broken[0].reason)
    return jobs


def _common(configs: Sequence[Composed]) -> dict[str, Any]:
    """What a run has one of."""
    common = {name: [config.values.get(name, DEFAULTS.get(name)) for config in configs] for name in ONE_RUN}
    for name, values in common.items():
        found = list(dict.fromkeys(map(repr, values)))
        if len(found) > 1:
            raise ValueError(f"one run writes one folder, in one way: {name} cannot be swept; got {', '.join(found)}")
    return {name: values[0] for name, values in common.items()}


def _build(config: Composed, command: str) -> Series | Unbuildable:
    labels = parse_labels(config.values, config.choices, command)
    try:
        return predictable(parse_series(config.values, labels))
    except ValueError as error:
        return Unbuildable(labels, config, str(error))


def _switch(name: str, value: object) -> bool:
    """A yes or no; ValueError names the key."""
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false; got {value!r}")
    return value
