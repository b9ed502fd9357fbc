"""Text from records as safe Markdown: what a device or an error message is called must not change the page."""

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[\d.,]+[kM]?( B)?( \(.*\))?")  # 512, 8k, 4,096 B (4 KiB)


class Markdown(str):
    """Text that is Markdown already and is not escaped again."""

    __slots__ = ()


def escape(text: object) -> Markdown:
    """One line of plain text as Markdown: no HTML, no emphasis, no table cell or heading can start in it."""
    if isinstance(text, Markdown):
        return text
    line = " ".join(str(text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = re.sub(r"([\\`*|~#$])", r"\\\1", line)
    line = re.sub(r"\](?=[(\[:])", r"\\]", line)  # only there could a link begin; [1.0, 2.0] stays readable
    # inside a word an underscore is harmless, and too\_large would be hard to read
    return Markdown(re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line))


def alt_text(text: object) -> Markdown:
    """Text for between the brackets of an image, which may not hold brackets of its own."""
    return escape(str(text).replace("[", "(").replace("]", ")"))


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Markdown:
    """A Markdown table; every cell is escaped, columns of numbers are aligned right."""
    numeric = [bool(rows) and all(_NUMBER.fullmatch(str(row[i])) for row in rows) for i in range(len(header))]
    rule = ["---:" if right else "---" for right in numeric]
    lines = [header, *rows]
    body: list[list[str]] = [[escape(cell) for cell in line] for line in lines]
    return Markdown("\n".join("| " + " | ".join(line) + " |" for line in [body[0], rule, *body[1:]]))


def code_block(text: str) -> Markdown:
    """A fenced block, the fence longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return Markdown(f"{fence}sh\n{text}\n{fence}")
