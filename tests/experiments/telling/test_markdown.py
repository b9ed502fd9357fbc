"""Text from a record cannot become markup."""

import pytest
from markdown_it import MarkdownIt

from experiments.telling.markdown import Markdown, alt_text, code_block, escape, table

HOSTILE = [
    "a | b",
    "first\nsecond\r\n# heading",
    "`code` and **bold** and __init__ and _x_",
    "<script>alert(1)</script> & <b>",
    "[link](http://example.org) ![image](x.png)",
    "[ref]: http://example.org",
    "~~struck~~ $maths$ \\| back\\slash",
    "trailing backslash \\",
]


def _words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_cell_stays_one_cell_of_plain_text(text: str) -> None:
    tokens = (
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .parse(table(["a", "b"], [[text, "x"]]))
    )
    kinds = [t.type for t in tokens]
    assert kinds.count("td_open") == 2
    inline = [t for t in tokens if t.type == "inline"]
    assert {c.type for t in inline for c in t.children or []} <= {"text", "text_special"}
    shown = "".join(c.content for c in inline[2].children or [])
    assert shown == _words(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_list_item_stays_plain_text(text: str) -> None:
    tokens = MarkdownIt("commonmark", {"html": True}).parse(f"* {escape(text)}")
    assert not any(t.type.startswith(("heading", "html", "fence", "table")) for t in tokens)
    (inline,) = [t for t in tokens if t.type == "inline"]
    assert {c.type for c in inline.children or []} <= {"text", "text_special"}
    assert "".join(c.content for c in inline.children or []) == _words(text)


def test_plain_words_and_intervals_are_left_readable() -> None:
    assert escape("too_large at 812.4 [805.1, 820.9] n=30") == "too_large at 812.4 [805.1, 820.9] n=30"


def test_our_own_markdown_is_not_escaped_twice() -> None:
    assert escape(Markdown("**bold**")) == "**bold**"


def test_alt_text_holds_no_brackets() -> None:
    tokens = MarkdownIt().parse(f"![{alt_text('a ] b [ c](x')}](figures/x.png)")
    assert [c.type for c in tokens[1].children or []] == ["image"]


def test_a_fence_is_longer_than_any_in_the_text() -> None:
    tokens = MarkdownIt().parse(code_block("echo ```\n# no heading"))
    assert [(t.type, t.content) for t in tokens] == [("fence", "echo ```\n# no heading\n")]
