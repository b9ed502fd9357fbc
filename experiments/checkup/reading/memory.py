"""Free memory, by the system and by the container."""

from pathlib import Path

import psutil

from experiments.checkup.memory import Memory
from experiments.checkup.reading.files import ROOT, cgroup_folders, number

UNLIMITED = 1 << 60  # version 1 says "no limit" with a huge number
FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def read(root: Path = ROOT) -> Memory:
    """What can be allocated now."""
    seen = psutil.virtual_memory()
    return Memory(seen.total, seen.available, allowed(root), psutil.swap_memory().used)


def allowed(root: Path = ROOT) -> int | None:
    """Bytes left under the tightest limit around this process; None without one."""
    left = [
        room
        for folder in cgroup_folders("memory", root)
        for files in FILES
        if (room := _room(folder, *files)) is not None
    ]
    return min(left, default=None)


def _room(folder: Path, limit_name: str, used_name: str) -> int | None:
    limit, used = number(folder / limit_name), number(folder / used_name)
    if limit is None or used is None or limit >= UNLIMITED:
        return None
    return max(0, limit - used)
