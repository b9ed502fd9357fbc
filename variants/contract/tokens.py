"""Counts of tokens as people write them: ``4096``, ``8k``, ``1M``."""

import re

_SUFFIX = {"k": 1024, "K": 1024, "M": 1024**2}
_PATTERN = re.compile(r"([0-9]+(?:_[0-9]+)*)([kKM]?)")
_ACCEPTED = "a whole number >= 1, optionally with k (1024) or M (1048576)"


def parse_tokens(value: object, name: str = "tokens") -> int:
    """Turn ``131072``, ``"128k"``, ``1e5`` or ``"1M"`` into a count of tokens (``k`` = 1024, ``M`` = 1024^2).

    Anything that could be read in two ways (``1m``, ``1.5k``, ``0x10``, ``true``) is refused.
    Raises ValueError naming ``name`` and the value.
    """
    count = _count(value)
    if count is None or count < 1:
        raise ValueError(f"{name} must be {_ACCEPTED}; got {value!r}")
    return count


def format_tokens(count: int) -> str:
    """Write a count the way a person reads it: 8192 -> ``8k``, 1048576 -> ``1M``, 1000 -> ``1000``."""
    for suffix in ("M", "k"):
        unit = _SUFFIX[suffix]
        if count >= unit and count % unit == 0:
            return f"{count // unit}{suffix}"
    return str(count)


def _count(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if not isinstance(value, str):
        return None
    match = _PATTERN.fullmatch(value)
    if match:
        return int(match[1].replace("_", "")) * _SUFFIX.get(match[2], 1)
    return _scientific(value)


def _scientific(text: str) -> int | None:
    """``1e5`` reaches us as a string from YAML 1.1 and as a float from Hydra's command line."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?[eE]\+?[0-9]{1,2}", text):
        return None
    number = float(text)
    return int(number) if number.is_integer() else None
