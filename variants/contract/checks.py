"""Numbers that come from a config: one clear line for what cannot be."""

import math


def check_count(name: str, value: object) -> None:
    """Raise ValueError naming ``name`` unless ``value`` is a whole number >= 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}")


def check_number(name: str, value: object) -> None:
    """Raise ValueError naming ``name`` unless ``value`` is a finite number > 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{name} must be a number > 0; got {value!r}")
