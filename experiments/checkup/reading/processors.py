"""The CPUs that this process may use."""

import os
import re
from pathlib import Path

import psutil

from experiments.checkup.processors import Processors
from experiments.checkup.reading.files import ROOT, text


def read(name: str, threads: int | None, vectors: str | None, root: Path = ROOT) -> Processors:
    """``name``, ``threads`` and ``vectors`` come from who has torch."""
    total = psutil.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    nodes = len(list((root / "sys/devices/system/node").glob("node[0-9]*")))
    return Processors(name, allowed, total, per_core(root), nodes or None, threads, vectors)


def per_core(root: Path = ROOT) -> int | None:
    """Logical CPUs of one core: ``0-1`` or ``0,64`` are two."""
    siblings = text(root / "sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    if not siblings:
        return None
    ranges = (part.split("-") for part in re.split(r"[,\s]+", siblings))
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)
