"""The table behind each figure: what it draws, row by row, so that a figure can be read without seeing it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from experiments.telling.figures.canvas import Drawn
from experiments.telling.frame import family_order, records
from experiments.telling.page import Facts
from experiments.telling.plots import FIGURES
from experiments.telling.setting import Setting
from experiments.telling.support import support_table
from experiments.telling.tables import Row, Table
from experiments.telling.words import NOTHING, count, latency, number, percent, tokens

MOST = 500  # rows behind one figure; records.jsonl has all
Column = tuple[str, Callable[[Row], str]]

_TIMED: tuple[Column, ...] = (
    ("latency", lambda row: latency(row, " us")),
    ("GB/s", lambda row: number(row["bandwidth_gbps"])),
    ("read ceiling", lambda row: number(row["read_ceiling_gbps"])),
    ("FLOP/byte", lambda row: _ratio(row["flops"], row["io_bytes"], 1)),
    ("TFLOP/s", lambda row: _ratio(row["flops"], row["latency_us_p50"], 1e6)),
    ("of roofline", lambda row: percent(row["roofline_fraction"])),
)
COLUMNS: Mapping[str, tuple[Column, ...]] = {
    "cache": (("bytes per sequence and layer", lambda row: count(row["bytes_per_sequence"])),),
    "latency": _TIMED[:1],
    "bandwidth": _TIMED[1:3],
    "roofline": _TIMED[3:],
}


def numbers(facts: Facts) -> dict[str, Table]:
    """Tables by the stem of their figure; a figure whose table stands right above it needs no second one."""
    found = {
        drawn.stem: _rows(page, name)
        for page, figures in zip(facts.pages, facts.figures, strict=True)
        for name, drawn in zip(FIGURES, figures or (), strict=bool(figures))
    }
    matrices = zip(facts.supports, facts.matrices, strict=True)
    found |= {drawn.stem: support_table(it) for it, drawn in matrices if it and drawn}
    return found | {drawn.stem: table for drawn, table in _in_sections(facts)}


def _in_sections(facts: Facts) -> Iterator[tuple[Drawn, Table]]:
    """A section's figure shows its own table, or those of the whole section together."""
    for section in filter(None, (*facts.sections, facts.published, facts.turning)):
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


def _rows(page: Setting, name: str) -> Table:
    columns = COLUMNS[name]
    rows = [row for row in records(page.rows) if row["context"] is not None]
    if name == "cache":
        rows = list({(row["label"], row["context"], row["bytes_per_sequence"]): row for row in rows}.values())
    rows.sort(key=lambda row: (family_order(row["label"]), row["scope"], row["context"], row["repeat"]))
    where: tuple[Column, ...] = (
        ("variant", lambda row: row["label"]),
        *((("scope", lambda row: row["scope"]),) if name != "cache" else ()),
        ("context", lambda row: tokens(row["context"])),
    )
    lines = [tuple(say(row) for _, say in where) + _cells(columns, row, name) for row in rows[:MOST]]
    if len(rows) > MOST:
        more = f"and {len(rows) - MOST} more rows, which the records hold"
        lines.append((more, *("" for _ in range(len(where) + len(columns) - 1))))
    return Table(tuple(title for title, _ in (*where, *columns)), tuple(lines))


def _cells(columns: Sequence[Column], row: Row, name: str) -> tuple[str, ...]:
    if name != "cache" and row["latency_us_p50"] is None:
        return (row["status"], *(NOTHING for _ in columns[1:]))
    return tuple(say(row) for _, say in columns)


def _ratio(above: Any, below: Any, unit: float) -> str:
    return number(above / below / unit) if above is not None and below else NOTHING
