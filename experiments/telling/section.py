"""A section of the report that stands only where its rows do: text, tables, notes, figures."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.telling.figures.canvas import Drawn
from experiments.telling.tables import Table


@dataclass(frozen=True)
class Block:
    """A paragraph, then a table, then notes below it, then a figure; each but the first may be missing."""

    text: str
    table: Table | None = None
    notes: Sequence[str] = ()
    figure: Drawn | None = None


@dataclass(frozen=True)
class Section:
    """``number`` is the setting's, from 1; None: it is about all.

    ``explained`` are keys of rows without a value that it accounts for.
    """

    heading: str
    number: int | None
    blocks: Sequence[Block]
    explained: frozenset[str] = frozenset()
