"""The folder of one run: locked while it is written, one log and one sample file per series below it."""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.record import Measurement
from experiments.records import CHECKS, SeriesLog, append_lines

SAMPLES = "samples"
PART = ".part"  # what a file that is not whole yet is called
RESUMES = ("missing", "failed", "all", "none")  # what of a run that is there already is kept


def run_folder(results: object, name: object) -> Path:
    """``<results>/runs/<name>``; ValueError if the name is not the name of one folder, or either is null."""
    if results is None or name is None or not re.fullmatch(r"[\w][\w.-]*", str(name)):
        raise ValueError(
            "name must be letters, digits, '.', '_' and '-', starting with none of '.-', and results a folder; "
            f"got name={name!r}, results={results!r}"
        )
    return Path(str(results)) / "runs" / str(name)


def parse_resume(value: object) -> str:
    """One of ``RESUMES``; ValueError says which there are."""
    if value not in RESUMES:
        raise ValueError(f"resume must be one of {', '.join(RESUMES)}; got {value!r}")
    return str(value)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process; ValueError naming the holder's pid if another run has it.

    The lock is the kernel's: it ends with the process, however that ends, so a stale file locks nobody out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise ValueError(
                f"{folder} is being written by another run (pid {holder}); wait for it or choose a folder with name=..."
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        for part in folder.glob(f"*/{SAMPLES}/*{PART}"):  # of a run that was killed: nobody else writes here now
            part.unlink(missing_ok=True)
        yield


def store(folder: Path, rows: tuple[Measurement, ...], samples: Mapping[str, NDArray[np.float64]]) -> None:
    """Append a point's rows to their series' log; raw samples (us, [rounds, replicas]) go beside it first."""
    if not rows:
        return
    store_samples(folder / rows[0].series, samples)
    SeriesLog(folder / rows[0].series).append(*rows)


def store_samples(series: Path, samples: Mapping[str, NDArray[np.float64]]) -> None:
    """Raw samples by key, in the folder of a series; each file is there as a whole, or as it was before.

    All are written before the first is synced: the disk then has less to do than for one after the other.
    """
    parts = [series / SAMPLES / f"{key}{PART}" for key in samples]
    if parts:
        (series / SAMPLES).mkdir(parents=True, exist_ok=True)
    try:
        with ExitStack() as opened:
            files = [opened.enter_context(part.open("wb")) for part in parts]
            for file, us in zip(files, samples.values(), strict=True):
                np.save(file, us)
                file.flush()
            for file in files:
                os.fsync(file.fileno())
        for part in parts:
            os.replace(part, part.with_suffix(".npy"))
    except OSError:
        for part in parts:
            part.unlink(missing_ok=True)
        raise


def note(folder: Path, check: Mapping[str, Any]) -> None:
    """Append what was found out about the run itself, not about one row, to its file of checks."""
    append_lines(folder / CHECKS, json.dumps(check, allow_nan=False, ensure_ascii=False))
