"""The tables behind the figures, by the stem of their files."""

from collections.abc import Iterator, Sequence

from experiments.telling.figures.canvas import Drawn
from experiments.telling.page import Facts
from experiments.telling.support import support_table
from experiments.telling.tables import Table


def numbers(facts: Facts) -> dict[str, Table]:
    """What each figure carries; of the others what stands beside them in their section."""
    own = {drawn.stem: drawn.table for figures in facts.figures for drawn in figures if drawn.table}
    matrices = zip(facts.supports, facts.matrices, strict=True)
    own |= {drawn.stem: support_table(it) for it, drawn in matrices if it and drawn}
    return own | {drawn.stem: table for drawn, table in _in_sections(facts)}


def _in_sections(facts: Facts) -> Iterator[tuple[Drawn, Table]]:
    """A section's figure shows its own table, or those of the whole section together."""
    judged = facts.quality.section if facts.quality else None
    for section in filter(None, (*facts.sections, judged, facts.published, facts.turning)):
        tables = [block.table for block in section.blocks if block.table]
        for block in section.blocks:
            if block.figure and (block.table or tables):
                yield block.figure, block.table or _joined(tables)


def _joined(tables: Sequence[Table]) -> Table:
    """Tables of different columns one below the other: what a column is called stands in each cell."""
    lines = [
        (row[0], ", ".join(f"{name}: {cell}" for name, cell in zip(table.header[1:], row[1:], strict=True)))
        for table in tables
        for row in table.rows
    ]
    return Table((tables[0].header[0], "numbers"), tuple(lines))
