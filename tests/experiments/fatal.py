"""A small run in this process that ends at a moment of one's choice as SIGKILL ends it: what is buffered is lost.

Test processes are forked from a clean server to run ``run``; what it leaves behind is what a kill leaves.
"""

import fcntl
import io
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import launcher, runfolder
from experiments.door import Composed
from experiments.launcher import launch
from experiments.measuring.rounds import Lane
from experiments.measuring.worker import Worker
from experiments.records import CHECKS, RECORDS, SeriesLog
from tests.experiments.builders import OneBench, composed, device, pretend

Patch = pytest.MonkeyPatch


def run(folder: Path, moment: str, number: int) -> None:
    """Measure in ``folder``, and die when the moment comes for the ``number``-th time."""
    os.chdir(folder)
    patch = pytest.MonkeyPatch()
    pretend(device(), patch)
    patch.setattr(launcher, "Benches", OneBench)
    MOMENTS[moment](patch, Fuse(number))
    raise SystemExit(launch(configs(), ""))


def configs() -> list[Composed]:
    """Two series that race at two points, two rows each."""
    return [composed(attention, context=[16, 32], timer={"threads": 1}) for attention in ("gqa", "mla")]


class Fuse:
    """Burns once per call; at the last one the process is gone."""

    def __init__(self, number: int) -> None:
        self.left = number

    def burnt(self) -> bool:
        """Whether this is the time."""
        self.left -= 1
        return self.left == 0

    def burn(self) -> None:
        """Go, if this is the time."""
        if self.burnt():
            die()


def die() -> None:
    """As the kernel would have it: no handler, no flush, no farewell."""
    os.kill(os.getpid(), signal.SIGKILL)


def _before(where: Any, name: str) -> Callable[[Patch, Fuse], None]:
    """When a function is called."""

    def lay(patch: Patch, fuse: Fuse) -> None:
        real = getattr(where, name)

        def called(*args: Any, **options: Any) -> Any:
            fuse.burn()
            return real(*args, **options)

        patch.setattr(where, name, called)

    return lay


def _synced(ending: str, after: bool) -> Callable[[Patch, Fuse], None]:
    """When a file whose name ends so is about to be synced, or has been."""

    def lay(patch: Patch, fuse: Fuse) -> None:
        real = os.fsync

        def fsync(descriptor: int) -> None:
            if after:
                real(descriptor)
            if os.readlink(f"/proc/self/fd/{descriptor}").endswith(ending):
                fuse.burn()
            if not after:
                real(descriptor)

        patch.setattr(os, "fsync", fsync)

    return lay


def _half_of_the_samples(patch: Patch, fuse: Fuse) -> None:
    real = np.save

    def save(file: Any, us: Any) -> None:
        if fuse.burnt():
            whole = io.BytesIO()
            real(whole, us)
            file.write(whole.getvalue()[: whole.tell() // 2])
            file.flush()
            die()
        real(file, us)

    patch.setattr(np, "save", save)


def _torn(name: str, share: float) -> Callable[[Patch, Fuse], None]:
    """When this share of what is to be appended to a file of that name has reached it."""

    def lay(patch: Patch, fuse: Fuse) -> None:
        class Torn(io.FileIO):
            def write(self, text: Any) -> int:
                if fuse.burnt():
                    super().write(text[: int(len(text) * share)])
                    die()
                return super().write(text)

        real = Path.open

        def opened(self: Path, *args: Any, **options: Any) -> Any:
            if self.name == name and args == ("ab+",):
                return Torn(str(self), "ab+")
            return real(self, *args, **options)

        patch.setattr(Path, "open", opened)

    return lay


MOMENTS: dict[str, Callable[[Patch, Fuse], None]] = {
    "the folder is about to be locked": _before(fcntl, "flock"),
    "a point is prepared": _before(Worker, "_prepare"),
    "a round is sampled": _before(Lane, "sample"),
    "a point is about to be stored": _before(launcher, "store_or_rescue"),
    "half of some samples are written": _half_of_the_samples,
    "samples are written and not synced": _synced(runfolder.PART, after=False),
    "samples are synced and have no name": _before(os, "replace"),
    "samples are there and their rows are not": _before(SeriesLog, "append"),
    "a quarter of the rows is written": _torn(RECORDS, 0.25),
    "three quarters of the rows are written": _torn(RECORDS, 0.75),
    "all but the last newline is written": _torn(RECORDS, 0.9999),
    "rows are written and not synced": _synced(RECORDS, after=False),
    "rows are synced": _synced(RECORDS, after=True),
    "half of a check is written": _torn(CHECKS, 0.5),
}
