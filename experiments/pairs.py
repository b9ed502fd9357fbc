"""``key=value`` arguments of a door that does without Hydra: an answer in a fraction of a second."""

from collections.abc import Mapping, Sequence

PAIRS_HELP = "Values may be lists: key='[a,b]' or key=a,b."


def parse_pairs(arguments: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """``key=value`` arguments by key; ValueError for an unknown key, one given twice, or an argument without ``=``."""
    found: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            raise ValueError(f"arguments must be key=value; got {argument!r} (see --help)")
        if key not in known:
            raise ValueError(f"key must be one of {', '.join(known)}; got {key!r}")
        if key in found:
            raise ValueError(f"{key} must be given once; got {found[key]!r} and {value!r}")
        found[key] = value
    return found


def listed(name: str, value: str) -> list[str]:
    """``[a,b]``, ``a,b`` or ``a`` as its items; ValueError for a list that is empty or not closed."""
    inner = value.strip()
    if inner.startswith("[") != inner.endswith("]"):
        raise ValueError(f"{name} must be a value or a list in brackets; got {value!r}")
    items = [item.strip().strip("'\"") for item in inner.removeprefix("[").removesuffix("]").split(",")]
    if not all(items):
        raise ValueError(f"{name} must have no empty items; got {value!r}")
    return items


def number(values: Mapping[str, str], name: str, least: int = 1) -> int:
    """A whole number of at least ``least``; ValueError names the key and what was given."""
    text = values[name]
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise ValueError(f"{name} must be a whole number >= {least}; got {text!r}")
    return int(text)
