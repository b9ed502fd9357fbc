"""Whose turn it is on a device: of all runs on a host, one at a time is timed on a GPU, and one on the CPUs.

Locks are the kernel's, on files of one folder: they end with the process, however that ends. Runs that cannot see each
other's folder for temporary files need one for all of them: KVARIANTS_LOCKS.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from experiments.record import TIMED, Measurement

LOCKS = "KVARIANTS_LOCKS"
VISIBLE = "CUDA_VISIBLE_DEVICES"
POLL_S = 0.5
CPU = "cpu"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Gpu:
    """What the driver calls it, and the word in CUDA_VISIBLE_DEVICES that makes a process see it alone."""

    uuid: str
    word: str


class Turn:
    """What a run that is being timed knows of others on this host."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._most = 0

    def begin(self) -> None:
        """A point begins: forget what was before."""
        self._most = _timed_on_host(self._folder) if self._folder else 0

    def told(self, rows: Iterable[Measurement]) -> tuple[Measurement, ...]:
        """The rows of the point; those that were timed say ``host_series``.

        As many as there were at its start or are now, whichever is more; null where that cannot be told.
        """
        if self._folder is None:
            return tuple(rows)
        self._most = max(self._most, _timed_on_host(self._folder))
        return tuple(replace(row, host_series=self._most) if _timed(row) else row for row in rows)


def _timed(row: Measurement) -> bool:
    return row.status in TIMED and row.origin == "measured"


@contextmanager
def turn(kinds: Collection[str], exclusive: bool, say: Say) -> Iterator[Turn]:
    """Wait for a device of each kind and hold it; of several GPUs this process, new to CUDA, sees the one it holds.

    ``kinds``: as ``device.kind``; empty: nothing is timed, and nothing held. Not ``exclusive``: nobody waits.
    ``say`` is told once why it waits, or that it cannot hold anything: then it goes on all the same.
    """
    if not kinds:
        yield Turn(None)
        return
    with ExitStack() as held:
        folder = None
        try:
            folder = lock_folder()
            for devices in wanted(kinds, visible_gpus(os.environ)) if exclusive else []:
                taken = _wait(folder, [gpu.uuid for gpu in devices], held, say)
                if len(devices) > 1:
                    os.environ[VISIBLE] = devices[taken].word
            _slot(folder, held)
        except OSError as error:
            say(f"nobody is kept from timing beside this run: {error}; {LOCKS}=FOLDER names a folder for locks")
            folder = None
        yield Turn(folder)


def wanted(kinds: Collection[str], gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    """Per device that is needed, those that would do. In one order for all, so that no two runs wait for each other."""
    on_gpu = bool(gpus) and any(kind != CPU for kind in kinds)
    on_cpu = any(kind == CPU or (kind == "auto" and not gpus) for kind in kinds)
    return [*([[Gpu(CPU, "")]] if on_cpu else []), *([list(gpus)] if on_gpu else [])]


def visible_gpus(environment: Mapping[str, str]) -> list[Gpu]:
    """The GPUs that CUDA would show to this process, without starting CUDA."""
    uuids = driver_uuids()
    words = environment.get(VISIBLE)
    if words is None:
        return [Gpu(uuid, uuid) for uuid in uuids]
    gpus = []
    for word in (word.strip() for word in words.split(",")):
        if word.isdigit() and int(word) < len(uuids):
            gpus.append(Gpu(uuids[int(word)], word))
        elif word.startswith(("GPU-", "MIG-")):
            gpus.append(Gpu(word, word))
        else:
            break  # CUDA shows none from the first on that is not there
    return gpus


def driver_uuids() -> list[str]:
    """Names of this machine's NVIDIA GPUs in the order of their slots; none where there is no driver."""
    try:
        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # not installed, or no driver: pynvml's error, whatever its class
        return []
    try:
        handles = map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return [str(nvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    finally:
        nvml.nvmlShutdown()


def lock_folder() -> Path:
    """Where runs of all users find each other's locks."""
    folder = Path(os.environ.get(LOCKS) or Path(tempfile.gettempdir()) / "kvariants-locks")
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
    return folder


def _wait(folder: Path, names: Sequence[str], held: ExitStack, say: Say) -> int:
    """Hold one of the named devices, the first that is free; its index."""
    said = False
    while True:
        for index, name in enumerate(names):
            if _hold(folder / f"device-{name}", held):
                return index
        if not said:
            holders = ", ".join(_holder(folder / f"device-{name}") for name in names)
            say(f"waiting for {' or '.join(names)}: timed by process {holders}; exclusive=false would not wait")
            said = True
        time.sleep(POLL_S)


def _slot(folder: Path, held: ExitStack) -> None:
    """Be counted among those that are timed on this host, until the run ends."""
    number = 0
    while not _hold(folder / f"timed-{number}", held):
        number += 1


def _timed_on_host(folder: Path) -> int:
    """How many are."""
    count = 0
    for path in folder.glob("timed-*"):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                count += 1
    return count


def _hold(path: Path, held: ExitStack) -> bool:
    """Lock a file for this process and write who it is into it; False if another has it."""
    file = held.enter_context(_open(path))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return False
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return True


def _open(path: Path) -> IO[str]:
    """A file of all users: opened as it is where it exists, since a sticky folder lets nobody create it again."""
    try:
        return path.open("r+")
    except FileNotFoundError:
        file = path.open("a+")
        path.chmod(0o666)
        return file


def _holder(path: Path) -> str:
    return path.read_text().strip() or "unknown"
