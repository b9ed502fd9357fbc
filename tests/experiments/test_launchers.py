"""Hydra's own launchers: a series per job, in a process of its own, and the same rows as without them."""

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments import foreign
from experiments.foreign import FOREIGN, Errand
from experiments.record import Measurement
from experiments.records import load
from experiments.run import main
from tests.builders import ROOT
from tests.experiments.builders import Answer, Street, shell

pytestmark = pytest.mark.slow

HERE = ("joblib", "submitit_local", "ray")  # submitit_slurm needs a cluster
STUDY = (
    *("-m", "attention=mha,mqa", "workload.context=[16,32]", "workload.scopes=[step]"),
    *("workload.temperature=warm", "model=smollm2_135m", "device=cpu", "timer.rounds=2", "timer.max_rounds=2"),
)
TWO_AT_ONCE = {
    "joblib": ("hydra.launcher.n_jobs=2",),
    "submitit_local": (),
    "ray": ("hydra.launcher.address=local", "hydra.launcher.num_cpus=2"),
}
DANGEROUS = (
    "submitit_slurm hydra.launcher.setup=[reboot]",
    "submitit_slurm +hydra.launcher.setup=[reboot]",
    "submitit_slurm +hydra.launcher.additional_parameters={wrap:reboot}",
    "submitit_slurm hydra.launcher.submitit_folder=/elsewhere",
    "submitit_slurm hydra.launcher.tasks_per_node=2",
    "submitit_slurm 'hydra.launcher.partition=\"a\\nreboot\"'",
    "submitit_slurm 'hydra.launcher.partition=\"$(reboot)\"'",
    "submitit_slurm 'hydra.launcher.partition=\"a;reboot\"'",
    "submitit_slurm hydra.launcher.partition=[a]",
    "submitit_slurm 'hydra.launcher.partition=${oc.env:HOME}'",
    "submitit_local hydra.launcher._target_=os.system",
    "submitit_local +hydra.launcher.python=reboot",
    "joblib hydra.launcher._target_=hydra_plugins.kvariants_launcher.RoundsLauncher",
    "joblib +hydra.launcher.temp_folder=/elsewhere",
    "ray +hydra.launcher.runtime_env={setup:reboot}",
    "ray hydra.launcher.num_cpus={a:reboot}",
    "ray hydra.launcher.address=ray://elsewhere:10001",
    "ray_aws attention=mha",
)


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Street]:
    before = sys.path.copy()
    monkeypatch.setattr(foreign, "find_spec", lambda name: name)  # as if everything were installed
    yield Street(tmp_path, monkeypatch, capfd)
    sys.path[:] = before


def knock(street: Street, arguments: str) -> Answer:
    """As a shell would split them."""
    return street.knock(main, "-m", *shlex.split("attention=mha,mqa hydra/launcher=" + arguments))


@pytest.mark.parametrize("arguments", DANGEROUS)
def test_what_could_run_code_through_a_launcher_is_refused(street: Street, arguments: str) -> None:
    assert knock(street, arguments).refusal
    assert street.files() == []


@pytest.mark.parametrize("launcher", FOREIGN)
def test_a_refusal_says_what_may_be_set(street: Street, launcher: str) -> None:
    refusal = knock(street, f"{launcher} +hydra.launcher.x=1").refusal
    assert refusal.startswith("hydra.launcher.x may not be set: what is under hydra can run code; only hydra.mode, ")
    assert all(f"hydra.{option}" in refusal for option in foreign.options(launcher))


@pytest.mark.parametrize("launcher", FOREIGN)
def test_every_option_that_may_be_set_is_in_our_conf(street: Street, launcher: str) -> None:
    """Else it would need a plus sign; name=../x ends each of these before a job is sent."""
    options = [f"hydra.{option}={'local' if option.endswith('address') else 4}" for option in foreign.options(launcher)]
    assert knock(street, " ".join([launcher, *options, "name=../x"])).refusal.startswith("name must be ")
    assert street.files() == []


@pytest.mark.parametrize("wrong", ["name=../x", "name=a/b", "shard=4/4", "isolation=none", "exclusive=maybe"])
def test_what_is_wrong_with_all_jobs_is_said_before_one_is_sent(street: Street, wrong: str) -> None:
    assert knock(street, f"joblib {wrong}").refusal.startswith(wrong.split("=")[0])
    assert street.files() == []


def test_a_launcher_that_is_not_installed_says_what_to_install(street: Street) -> None:
    street.monkeypatch.setattr(foreign, "find_spec", lambda name: None)
    assert knock(street, "submitit_slurm").refusal == (
        "hydra/launcher=submitit_slurm needs a package that is not installed: pip install 'kvariants[slurm]'"
    )


def test_a_job_begins_where_and_as_the_command_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    monkeypatch.setattr(sys, "argv", ["run.py", "study=quick"])
    errand = Errand()
    started = Path.cwd()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["-m", "worker"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    errand.arrive()
    assert (Path.cwd(), sys.argv) == (started, ["run.py", "study=quick"])
    assert (os.environ["OMP_NUM_THREADS"], os.environ.get("NUMBA_NUM_THREADS")) == ("3", None)


def test_a_host_without_the_folder_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="gone is not on this host; jobs need the folder that the command was typed in"
    ):
        Errand(folder=tmp_path / "gone").arrive()


# the real ones


PATCHES = """
# Python imports this first in every process: a small cache is soon swept, and the worker of one series may die.
import importlib.util, os, sys

def small_cache(module):
    module._last_level_cache = lambda: 2**20

def death(module):
    prepare = module.Worker._prepare
    dies = os.environ.get("DIES")
    module.Worker._prepare = lambda self, request: (
        os._exit(7) if self.series.labels.attention == dies else prepare(self, request)
    )

class Finder:
    patches = {"experiments.measuring.device": small_cache, "experiments.measuring.worker": death}

    def find_spec(self, name, path, target=None):
        patch = self.patches.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), patch(module))
        return spec

sys.meta_path.insert(0, Finder())
"""


def ran(folder: Path, launcher: str, dies: str = "") -> tuple[Answer, tuple[Measurement, ...]]:
    """What the command said, and every row of its run."""
    patches = folder.with_name(f"{folder.name}-patches")
    patches.mkdir(exist_ok=True)
    (patches / "sitecustomize.py").write_text(PATCHES)
    environment = {"PYTHONPATH": f"{patches}{os.pathsep}{ROOT}", "DIES": dies, "RAY_AUTH_MODE": "disabled"}
    command = ("-m", "experiments.run", *STUDY, f"name={launcher}", f"hydra/launcher={launcher}")
    answer = shell(*command, *TWO_AT_ONCE.get(launcher, ()), cwd=folder, **environment)
    return answer, load(folder / "results" / "runs" / launcher).rows


@pytest.mark.parametrize("launcher", HERE)
def test_the_same_study_gives_the_same_keys_each_once(tmp_path: Path, launcher: str) -> None:
    _, expected = ran(tmp_path, "rounds")
    answer, rows = ran(tmp_path, launcher)
    assert Counter(row.key for row in rows) == Counter(row.key for row in expected), answer
    assert len({row.key for row in rows}) == 4
    assert answer.code == (0 if {row.status for row in rows} == {"ok"} else 3), answer
    assert {row.status for row in rows} <= {"ok", "quarantined"}
    assert {(row.interleave, row.host_series) for row in rows} == {("none", 1)}
    assert {f"hydra/launcher={launcher}" in str(row.command) for row in rows} == {True}
    parts = {path.name for path in (tmp_path / "results" / "runs" / launcher).iterdir()}
    assert parts - {".submitit"} == {"job-0", "job-1"}
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


@pytest.mark.parametrize("launcher", HERE)
def test_a_series_that_crashes_leaves_the_others_rows(tmp_path: Path, launcher: str) -> None:
    answer, rows = ran(tmp_path, launcher, dies="mqa")
    assert answer.code == 3, answer
    assert {(row.attention, row.context): row.status for row in rows if row.attention == "mqa"} == {
        ("mqa", 16): "crash",
        ("mqa", 32): "crash",
    }
    assert "exit status 7" in str(rows[-1].reason)
    assert {row.status for row in rows if row.attention == "mha"} <= {"ok", "quarantined"}
    assert Counter(row.attention for row in rows) == {"mha": 2, "mqa": 2}
