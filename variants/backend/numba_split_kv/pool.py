"""One OpenMP for torch and numba.

Torch brings a libgomp of its own, and numba's threading layer would load the system's beside it. The threads of both
spin for milliseconds after each parallel loop, in case another one follows, and take the cores from each other.
"""

import ctypes
import sys
from pathlib import Path

import torch

MAPS = Path("/proc/self/maps")


def share() -> None:
    """Let numba's threading layer, which loads later, find torch's libgomp first; nothing where torch has none."""
    if not sys.platform.startswith("linux"):
        return
    loaded = {Path(line.split()[-1]) for line in MAPS.read_text().splitlines() if "libgomp" in line}
    for path in (path for path in loaded if Path(torch.__file__).parent.parent in path.parents):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
