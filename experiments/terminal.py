"""Tables and lines as a person's terminal can show them: coloured and wrapped there, plain text everywhere else."""

import sys
from collections.abc import Sequence
from io import StringIO

STYLES = {"bad": "red", "warn": "yellow", "good": "green", "plain": ""}
GAP = "  "
SHORT = 24  # columns this narrow never wrap, so that long ones have the room


def say(text: str) -> None:
    """Print whatever the terminal can show: a device's name must not end a door in an encoding error."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, errors="replace").decode(encoding))


def show(header: Sequence[str], rows: Sequence[Sequence[str]], moods: Sequence[str]) -> None:
    """Print a table. On a terminal a row has its mood's colour (not under NO_COLOR) and long cells wrap.

    Elsewhere every row is one line, however long, so that it can be searched and cut.
    """
    say(_coloured(header, rows, moods) if sys.stdout.isatty() else aligned(header, rows))


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under each other in plain text, numbers to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    right = [bool(rows) and all(_numeric(row[i]) for row in rows) for i in range(len(header))]
    padded = (
        GAP.join(cell.rjust(w) if r else cell.ljust(w) for cell, w, r in zip(line, widths, right, strict=True))
        for line in lines
    )
    return "\n".join(line.rstrip() for line in padded)


def _coloured(header: Sequence[str], rows: Sequence[Sequence[str]], moods: Sequence[str]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(header):
        right = bool(rows) and all(_numeric(row[number]) for row in rows)
        short = all(len(row[number]) <= SHORT for row in rows)
        table.add_column(Text(name), justify="right" if right else "left", overflow="fold", no_wrap=short)
    for row, mood in zip(rows, moods, strict=True):
        table.add_row(*map(Text, row), style=STYLES[mood])
    width = Console().width  # of the real terminal, before its output is caught
    console = Console(file=StringIO(), force_terminal=True, width=width, emoji=False, markup=False, highlight=False)
    console.print(table)
    caught = console.file
    assert isinstance(caught, StringIO)
    return caught.getvalue().rstrip("\n")


def _numeric(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "", 1).isdigit() or cell in ("", "n/a")
