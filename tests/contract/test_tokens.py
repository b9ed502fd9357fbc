"""Counts of tokens as people write them; anything that could be read in two ways is refused."""

import pytest

from variants.contract.tokens import format_tokens, parse_tokens

BAD_TEXT: tuple[str, ...] = (
    "12q",
    "",
    "nan",
    "inf",
    "true",
    "0x10",
    "1m",
    "1G",
    "1.5k",
    "1 k",
    " 1k",
    "1k\n",
    "k",
    "1kk",
    "-1k",
    "+1",
)
BAD_TEXT += ("0", "0k", "1.0", "1e-3", "1.23e1", "1e400", "1_", "_1", "1__0", "1_k", "1,000", "⑧", "٣")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1k", 1024),
        ("8K", 8192),
        ("128k", 131_072),
        ("1M", 1_048_576),
        (1e5, 100_000),
        ("1e5", 100_000),
        ("1.5e3", 1500),
        ("2E+3", 2000),
        (131072, 131_072),
        (1_000, 1000),
        ("1_000", 1000),
        ("131072", 131_072),
        (1, 1),
    ],
)
def test_accepted(text, count):
    assert parse_tokens(text) == count
    assert type(parse_tokens(text)) is int


@pytest.mark.parametrize(
    "text",
    [*BAD_TEXT, 0, -1, 2.7, True, float("nan"), float("inf"), None, [1], {}, b"1k"],
)
def test_refused_naming_field_and_value(text):
    with pytest.raises(ValueError, match=r"^workload\.context must be a whole number >= 1") as error:
        parse_tokens(text, "workload.context")
    assert str(error.value).endswith(f"got {text!r}")


@pytest.mark.parametrize(
    ("count", "text"),
    [(1, "1"), (1000, "1000"), (1024, "1k"), (131_072, "128k"), (1 << 20, "1M"), (1536 << 10, "1536k")],
)
def test_format_reads_back(count, text):
    assert format_tokens(count) == text
    assert parse_tokens(text) == count
