"""Read a config file as data: one JSON object, of a sane size, and nothing else."""

import json
from pathlib import Path
from typing import Any

LARGEST = 16 * 2**20  # bytes; the largest config.json in use is below one


def load(path: Path) -> dict[str, Any]:
    """The object in a ``config.json``; ValueError says in one line why it is none, OSError if it cannot be read."""
    size = path.stat().st_size
    if size > LARGEST:
        raise ValueError(f"a config.json must be below {LARGEST} bytes; got {size}")
    try:
        raw = json.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("must be JSON in UTF-8") from None
    except RecursionError:
        raise ValueError("is nested too deep to be a config.json") from None
    except ValueError as error:
        raise ValueError(f"is no JSON: {error}") from None
    if not isinstance(raw, dict):
        raise ValueError(f"must hold one JSON object; got {type(raw).__name__}")
    return raw
