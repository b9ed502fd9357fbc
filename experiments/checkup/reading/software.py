"""Versions, and whether torch can be imported at all."""

import sys
from importlib import import_module, metadata

from experiments.checkup.software import Software

NAMES = ("torch", "numba", "triton", "numpy", "transformers", "flashinfer-python", "nvidia-ml-py")


def read() -> Software:
    """Imports torch, which takes seconds."""
    python = (sys.version_info.major, sys.version_info.minor, sys.version_info.micro)
    return Software(python, {name: _version(name) for name in NAMES}, _torch_error())


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _torch_error() -> str | None:
    try:
        import_module("torch")
    except (ImportError, OSError) as error:  # OSError: a shared library of it is missing
        return " ".join(f"{type(error).__name__}: {error}".split())
    return None
