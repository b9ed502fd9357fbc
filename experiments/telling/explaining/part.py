"""A piece of an explanation: sentences, or a table."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """``text`` comes first, then the table, if there are rows. ``strong``: row numbers to be read first."""

    text: str = ""
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    strong: frozenset[int] = frozenset()
