"""report.md as HTML: headings to link to, tables that scroll alone, figures with their numbers behind them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from experiments.telling.tables import Table

CONTENTS = ("h2", "h3")  # what the table of contents lists


@dataclass(frozen=True)
class Body:
    """``about``: what stands in the front matter. ``contents``: level, id and text of each heading that is listed."""

    title: str
    about: tuple[tuple[str, str], ...]
    contents: tuple[tuple[str, str, str], ...]
    html: str


def body(markdown: str, picture: Callable[[str], str], numbers: Callable[[str], Table | None]) -> Body:
    """``picture`` gives a figure's data URI by its stem, ``numbers`` the table behind it. Raw HTML stays text."""
    front, text = _front_matter(markdown)
    engine = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = engine.parse(text)
    contents = _name_headings(tokens)
    _free_figures(tokens)
    scroll = '<div class="scroll" role="region" aria-label="table" tabindex="0">'
    rules = {
        "table_open": lambda *_: f"{scroll}<table>\n",
        "table_close": lambda *_: "</table></div>\n",
        "image": lambda tokens, i, *_: _figure(tokens[i], picture, numbers),
    }
    for name, rule in rules.items():
        engine.add_render_rule(name, _method(rule))
    html = engine.renderer.render(tokens, engine.options, {})
    title = next((said for level, _, said in contents if level == "h1"), "Report")
    return Body(title, front, tuple(c for c in contents if c[0] in CONTENTS), html)


def html_table(it: Table, caption: str) -> str:
    """A table of plain cells; columns of numbers need no mark here, CSS aligns figures by their digits."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in it.header)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in it.rows)
    rows = "".join(f"<tr>{line}</tr>\n" for line in lines)
    table = f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>\n{rows}</tbody></table>"
    return f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">{table}</div>'


def _front_matter(markdown: str) -> tuple[tuple[tuple[str, str], ...], str]:
    _, front, text = markdown.split("---\n", 2)
    pairs = (line.split(": ", 1) for line in front.splitlines())
    return tuple((name, value) for name, value in pairs), text


def _name_headings(tokens: Sequence[Token]) -> list[tuple[str, str, str]]:
    """Give every heading an id that its text decides; of equal ones the second gets a number."""
    found: list[tuple[str, str, str]] = []
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            said = "".join(child.content for child in inline.children or [])
            slug = re.sub(r"[^a-z0-9]+", "-", said.lower()).strip("-")[:60] or "section"
            taken = sum(name == slug or name.startswith(f"{slug}--") for _, name, _ in found)
            name = f"{slug}--{taken + 1}" if taken else slug
            opening.attrSet("id", name)
            found.append((opening.tag, name, said))
    return found


def _free_figures(tokens: Sequence[Token]) -> None:
    """A figure may not stand in a paragraph."""
    for opening, inline, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inline.children or []
        if opening.type == "paragraph_open" and [child.type for child in children] == ["image"]:
            opening.hidden = closing.hidden = True


def _figure(token: Token, picture: Callable[[str], str], numbers: Callable[[str], Table | None]) -> str:
    stem = PurePosixPath(str(token.attrs["src"])).stem
    alt = "".join(child.content for child in token.children or [])
    image = f'<img src="{picture(stem)}" alt="{escape(alt)}">'
    table = numbers(stem)
    behind = "" if table is None else f"<details><summary>Numbers</summary>{html_table(table, alt)}</details>"
    return f"<figure>{image}<figcaption>{escape(alt)}</figcaption>{behind}</figure>\n"


def _method(rule: Callable[..., str]) -> Callable[..., str]:
    """A rule as the renderer calls it: as a method of its own."""
    return lambda _renderer, tokens, index, options, env: rule(tokens, index, options, env)
