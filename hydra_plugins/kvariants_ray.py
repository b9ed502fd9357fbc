"""A series per task of a Ray cluster: ``hydra/launcher=ray``.

Hydra's own, hydra-ray-launcher, is not used: it needs cloudpickle below 3 and, through boto3, python-dateutil below 3,
and at the first job that does not answer it ends the cluster, and with it the others.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict


class RayLauncher(Launcher):
    """Sends every job to a cluster that is there, or to one of this machine that ends with the command.

    ``address``: as ``ray.init`` has it. ``num_cpus`` and ``num_gpus`` are of a cluster that is begun here;
    ``cpus_per_series`` and ``gpus_per_series`` of whichever it is are what a series takes.
    """

    def __init__(
        self,
        address: str | None,
        num_cpus: int | None,
        num_gpus: int | None,
        cpus_per_series: float,
        gpus_per_series: float,
    ) -> None:
        self.cluster = {"address": address, "num_cpus": num_cpus, "num_gpus": num_gpus}
        self.series = {"num_cpus": cpus_per_series, "num_gpus": gpus_per_series}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra gives."""
        self.hydra_context = hydra_context
        self.task_function = task_function
        self.config = config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """What each job returned; one that was lost is a failed one, and the others are waited for."""
        ray: Any = import_module("ray")  # an extra, and slow
        ray.init(**self.cluster, include_dashboard=False)
        try:
            task = ray.remote(**self.series, max_retries=0)(_job)  # what died is measured by the next run, not twice
            state = Singleton.get_state()
            sent = [
                task.remote(self.hydra_context, self._composed(number, overrides), self.task_function, state)
                for number, overrides in enumerate(job_overrides, start=initial_job_idx)
            ]
            return [_answer(ray.get, one) for one in sent]
        finally:
            ray.shutdown()

    def _composed(self, number: int, overrides: Sequence[str]) -> DictConfig:
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.id = config.hydra.job.num = number
        return config


def _answer(get: Any, sent: Any) -> JobReturn:
    try:
        answer: JobReturn = get(sent)
    except Exception as error:  # whatever Ray says of a worker that is gone
        answer = JobReturn(status=JobStatus.FAILED)
        answer.return_value = error
    return answer


def _job(context: HydraContext, config: DictConfig, task: TaskFunction, state: Any) -> JobReturn:
    """What runs in the cluster."""
    setup_globals()
    Singleton.set_state(state)
    HydraConfig.instance().set_config(config)
    return run_job(task, config, "hydra.sweep.dir", "hydra.sweep.subdir", context)
