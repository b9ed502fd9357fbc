"""Hydra's way to ``experiments.launcher``: hand it every series of a sweep at once.

Hydra accepts a launcher only from this namespace; selected by ``override hydra/launcher: rounds`` in conf/config.yaml.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class RoundsConfig:
    """What ``hydra/launcher=rounds`` selects."""

    _target_: str = "hydra_plugins.kvariants_launcher.RoundsLauncher"


ConfigStore.instance().store(group="hydra/launcher", name="rounds", node=RoundsConfig, provider="kvariants")


class RoundsLauncher(Launcher):
    """Composes every job of the sweep and calls the door's task once with all of them."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra gives."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """One job for Hydra, whatever the number of series."""
        loader = self.hydra_context.config_loader
        configs = [loader.load_sweep_config(self.config, list(overrides)) for overrides in job_overrides]
        task: Any = self.task_function  # takes the whole list, where Hydra's type says one config
        done = JobReturn(status=JobStatus.COMPLETED)
        done.return_value = task(configs)
        return [done]
