"""The way back from Hydra: what the jobs of a sweep returned, wherever they ran.

Hydra's own sweeper drops it, and leaves a file before it has looked at the sweep.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.kvariants_launcher import RoundsLauncher


@dataclass
class GatheringConfig:
    """What ``hydra/sweeper=gathering`` selects."""

    _target_: str = "hydra_plugins.kvariants_sweeper.GatheringSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = field(default_factory=dict)


ConfigStore.instance().store(group="hydra/sweeper", name="gathering", node=GatheringConfig, provider="kvariants")


class GatheringSweeper(BasicSweeper):
    """All jobs at once. If a launcher sends them elsewhere, the door looks at them before, and hears them after."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep whose task it is."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.door: Any = getattr(task_function, "__self__", None)

    def sweep(self, arguments: list[str]) -> Any:
        """Launch every job; what each returned."""
        assert self.hydra_context is not None
        assert self.config is not None
        assert self.launcher is not None
        loader = self.hydra_context.config_loader
        overrides = OverridesParser.create(config_loader=loader).parse_overrides([*self._parse_config(), *arguments])
        jobs = self.split_arguments(overrides, None)[0]
        if isinstance(self.launcher, RoundsLauncher | BasicLauncher):
            return [done.return_value for done in self.launcher.launch(jobs, initial_job_idx=0)]
        self.door.before([loader.load_sweep_config(self.config, list(job)) for job in jobs])
        try:
            told = [done.return_value for done in self.launcher.launch(jobs, initial_job_idx=0)]
        except Exception as error:  # of the launcher: a job that it lost says nothing about the others' rows
            return self.door.lost(error)
        return self.door.hear(told)
