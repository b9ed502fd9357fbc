"""What transformers' configuration classes say where a file is silent, asked once per command in a process of its own.

Importing those classes takes seconds, and torch is kept out of it; the script builds nothing and runs nothing of a
file's. Run as ``python classes.py``, it reads type names as a JSON list and writes their classes' plain defaults.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SECONDS = 120


def ask(types: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
    """Field defaults of the classes of ``types``; a type without one has none.

    Raises ValueError in one line if transformers is not installed or does not answer.
    """
    wanted = sorted(set(types))
    command = [sys.executable, "-P", str(Path(__file__).resolve())]
    try:
        done = subprocess.run(
            command, input=json.dumps(wanted), capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"transformers' classes did not answer within {SECONDS} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise ValueError(f"transformers' classes could not be asked: {lines[-1]}")
    answer: Mapping[str, Mapping[str, Any]] = json.loads(done.stdout)
    return answer


def _defaults(model_type: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Plain defaults of a class's fields, under the fields' own names."""
    if model_type not in mapping:
        return {}
    fields = getattr(mapping[model_type], "__dataclass_fields__", {})
    return {name: field.default for name, field in fields.items() if _is_plain(field.default)}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _answer() -> None:
    """The child: torch is made to look absent, and only the answer goes to stdout."""
    for name in ("torch", "tensorflow", "jax", "flax"):
        sys.modules[name] = None  # type: ignore[assignment]
    wanted = json.load(sys.stdin)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        sys.exit("transformers is not installed (pip install 'kvariants[hf]')")
    json.dump({model_type: _defaults(model_type, CONFIG_MAPPING) for model_type in wanted}, sys.stdout)


if __name__ == "__main__":
    _answer()
