"""Python and the libraries that compute."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.checkup.check import Check

OLDEST, BELOW = (3, 11), (3, 14)  # requires-python in pyproject.toml
OLDEST_TORCH = (2, 6)


@dataclass(frozen=True)
class Software:
    """``versions``: name -> version, None where it is not installed. ``torch_error``: why it cannot be imported."""

    python: tuple[int, int, int]
    versions: Mapping[str, str | None]
    torch_error: str | None


def check(seen: Software, gpus: int) -> list[Check]:
    """Python, torch, numba and, where there is a GPU, triton."""
    return [_python(seen), _torch(seen), _numba(seen), *([_triton(seen)] if gpus else [])]


def _python(seen: Software) -> Check:
    said = ".".join(map(str, seen.python))
    if OLDEST <= seen.python[:2] < BELOW:
        return Check("python", "ok", said)
    span = f"{OLDEST[0]}.{OLDEST[1]} or newer, before {BELOW[0]}.{BELOW[1]}"
    return Check("python", "problem", said, f"use Python {span}: `make setup` with another interpreter")


def _torch(seen: Software) -> Check:
    version = seen.versions.get("torch")
    if version is None or seen.torch_error is not None:
        why = seen.torch_error or "not installed"
        return Check("torch", "problem", why, "`make setup` installs the pinned torch", stops=True)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and (int(found[1]), int(found[2])) < OLDEST_TORCH:
        wanted = ".".join(map(str, OLDEST_TORCH))
        return Check("torch", "problem", version, f"install torch {wanted} or newer: `make setup` has the pinned one")
    return Check("torch", "ok", version)


def _numba(seen: Software) -> Check:
    version = seen.versions.get("numba")
    if version is None:
        return Check("numba", "note", "not installed", "pip install numba: without it the CPU has no kernel of ours")
    return Check("numba", "ok", version)


def _triton(seen: Software) -> Check:
    version = seen.versions.get("triton")
    if version is None:
        advice = "pip install triton: without it the GPU has no kernel of ours, and flex cannot compile"
        return Check("triton", "note", "not installed", advice)
    return Check("triton", "ok", version)
