"""Runs as commands of their own, whose processes are found, killed and counted from outside."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Self

import psutil

from tests.builders import ROOT

MARK = "KVARIANTS_TEST_RUN"  # in the environment of all processes of a run, whoever their parent is by now
SMALL_MACHINE = """
import experiments.measuring.device as device
device._last_level_cache = lambda: 2**16  # five times this machine's own may be gigabytes
from experiments.run import main
main()
"""
SMALL = (
    "-m",
    "attention=gqa,mqa,mla",
    "model=smollm2_135m",
    "device=cpu",
    "workload.context=[16,32,48]",
    "timer.rounds=3",
    "timer.max_rounds=3",
    "timer.replicas=1",
    "timer.threads=1",
    "exclusive=false",
)
LONG_S = 200.0  # for what takes seconds, on a machine that does something else


class Command:
    """A run that has been started in ``folder``, with its processes."""

    def __init__(self, folder: Path, *asked: str, script: str = SMALL_MACHINE) -> None:
        self.mark, temporary = uuid.uuid4().hex, folder / "temporary"
        temporary.mkdir(parents=True, exist_ok=True)
        self.short = Path(tempfile.mkdtemp(prefix="kv-", dir="/tmp"), "t")  # the name of a socket may have 107 bytes
        self.short.symlink_to(temporary.resolve())
        clean = {name: value for name, value in os.environ.items() if name != "HYDRA_FULL_ERROR"}
        own = {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.short), "OMP_NUM_THREADS": "1", MARK: self.mark}
        self.said = (folder / "said").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *SMALL, *asked],
            cwd=folder,
            env={**clean, **own},
            stdin=subprocess.PIPE,
            stdout=self.said,
            stderr=subprocess.STDOUT,
        )

    @classmethod
    @contextmanager
    def started(cls, folder: Path, *asked: str, script: str = SMALL_MACHINE) -> Iterator[Self]:
        """Nothing of it is left in the end, whatever a test finds."""
        command = cls(folder, *asked, script=script)
        try:
            yield command
        finally:
            for process in command.alive():
                process.kill()
            command.process.communicate()
            command.said.close()
            command.short.unlink()
            command.short.parent.rmdir()

    def ended(self, within_s: float = LONG_S) -> int | None:
        """Its exit code; None if it runs on after so long."""
        try:
            return self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """The command's own process alone."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[psutil.Process]:
        """Processes that hold a series: children of the server that is a child of the command."""
        try:
            servers = psutil.Process(self.process.pid).children()
            return [worker for server in servers for worker in server.children()]
        except psutil.NoSuchProcess:
            return []

    def kill_worker(self, random: Random, span_s: float) -> bool:
        """Kill one of the workers within so long after there are some; False if the run has ended before."""
        while not self.workers():
            if self.ended(0.1) is not None:
                return False
        self.ended(random.uniform(0, span_s))
        workers = self.workers()
        if not workers:
            return False
        random.choice(workers).kill()
        return True

    def alive(self) -> list[psutil.Process]:
        """All processes of the run that are not over, orphans too."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def gone(self) -> bool:
        """Whether all of them are over, soon."""
        until = time.monotonic() + LONG_S
        while self.alive():
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def words(self) -> str:
        """What it has said."""
        return (Path(str(self.said.name))).read_text()

    def _ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False
