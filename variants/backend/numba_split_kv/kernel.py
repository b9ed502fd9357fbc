"""Compile a kernel, and keep its machine code for as long as no source of this package changes.

Numba's own cache looks at the file that a kernel stands in; what the kernel calls stands in others.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config, njit

# All of fastmath but nnan and ninf: minus infinity is how a row that has seen nothing is told, and NaN has to show.
FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}


def kernel(function: Callable[..., Any]) -> Any:
    """A function that numba compiles for several threads, once per types and sources."""
    settings: Any = config  # its attributes come from the environment
    before = settings.CACHE_DIR
    here = Path(__file__).parent
    settings.CACHE_DIR = str(Path(before or here / "__pycache__") / digest(here))
    try:
        return njit(parallel=True, fastmath=FAST, cache=True)(function)
    finally:
        settings.CACHE_DIR = before


def digest(folder: Path) -> str:
    """A short hash of every source of this package."""
    sources = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        sources.update(path.read_bytes())
    return sources.hexdigest()[:16]
