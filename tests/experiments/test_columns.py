"""What rows of every kind can do: columns of tuples, and what none of them can hold."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from experiments.columns import Row


@dataclass(frozen=True, kw_only=True)
class Seen(Row):
    WORD: ClassVar[str] = "sight"
    SCHEMA: ClassVar[int] = 3

    key: str
    schema: int = 3
    share: float | None = None
    curve: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        self.check_types()


def test_tuples_stand_as_lists_and_come_back_as_tuples() -> None:
    row = Seen(key="a", share=1, curve=((1, 2.5), (3, 4.0)))
    assert row.to_json() == '{"key":"a","schema":3,"share":1,"curve":[[1,2.5],[3,4.0]]}'
    assert Seen.from_json(row.to_json()) == row
    assert Seen.from_json('{"key":"a","schema":3}') == Seen(key="a")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"share": math.inf}, "share must be finite"),
        ({"share": 2**63}, "share must fit into 64 bits"),
        ({"share": "1"}, "share must be float or NoneType; got '1'"),
        ({"share": True}, "share must be float or NoneType; got True"),
        ({"curve": ((1.0, math.nan),)}, "curve must be finite"),
        ({"curve": ((1.0, "2"),)}, "curve must be float; got '2'"),
        ({"curve": [[1.0]]}, r"curve must be tuple; got \[\[1.0\]\]"),
        ({"key": "\ud800"}, "key must be text that UTF-8 can hold"),
    ],
)
def test_what_a_column_cannot_hold(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Seen(**{"key": "a", **changes})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"key":"a","schema":2}', "expected a sight of schema 3"),
        ('{"key":"a","schema":3,"hue":1}', r"sight has unknown columns \['hue'\]"),
        ('{"schema":3}', "sight lacks columns: .*'key'"),
        ('{"key":"a","schema":3,"share":NaN}', "NaN is not JSON"),
    ],
)
def test_lines_that_are_no_such_row(line: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Seen.from_json(line)
