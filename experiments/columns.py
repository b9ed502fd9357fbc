"""Rows as frozen dataclasses whose fields are columns: types checked, one line of strict JSON each."""

import json
import math
import types
from dataclasses import fields
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

LARGEST = 2**63  # what a column of whole numbers can hold


class Row:
    """What rows of every kind can do. A subclass is a dataclass with ``key`` and ``schema`` among its columns.

    ``WORD`` is what a row is called. Columns that are tuples, of numbers at any depth, stand as lists in JSON.
    """

    key: str
    WORD: ClassVar[str]
    SCHEMA: ClassVar[int]
    _types: ClassVar[dict[str, tuple[type, ...]]]

    @classmethod
    def column_types(cls) -> dict[str, tuple[type, ...]]:
        """The types that each column may have, in column order."""
        if "_types" not in cls.__dict__:
            cls._types = _types_of(cls)
        return cls._types

    def check_types(self) -> None:
        """ValueError for a value that its column cannot hold: of another type, not finite, no text."""
        for name, allowed in self.column_types().items():
            _check_type(name, getattr(self, name), allowed)

    def columns(self) -> dict[str, Any]:
        """The row as a mapping from column to value, in column order."""
        return {name: getattr(self, name) for name in self.column_types()}

    def to_json(self) -> str:
        """One line of strict JSON: no NaN, no infinity."""
        return json.dumps(self.columns(), allow_nan=False, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Self:
        """Parse one line; ValueError if it is torn, of another schema, or breaks a rule of the row's."""
        raw = json.loads(line, parse_constant=_no_constant)
        if not isinstance(raw, dict) or raw.get("schema") != cls.SCHEMA:
            raise ValueError(f"expected a {cls.WORD} of schema {cls.SCHEMA}; got {line[:60]!r}")
        known = cls.column_types()
        if unknown := set(raw) - set(known):
            raise ValueError(f"{cls.WORD} has unknown columns {sorted(unknown)}")
        given = {name: _frozen(value) if tuple in known[name] else value for name, value in raw.items()}
        try:
            return cls(**given)
        except TypeError as error:
            raise ValueError(f"{cls.WORD} lacks columns: {error}") from None


def _types_of(row: Any) -> dict[str, tuple[type, ...]]:
    hints = get_type_hints(row)
    named = {field.name: hints[field.name] for field in fields(row)}
    each = {name: get_args(hint) if isinstance(hint, types.UnionType) else (hint,) for name, hint in named.items()}
    return {name: tuple(get_origin(kind) or kind for kind in kinds) for name, kinds in each.items()}


def _frozen(value: object) -> object:
    """Lists as tuples, at any depth."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


def _check_type(name: str, value: object, allowed: tuple[type, ...]) -> None:
    if type(value) is int and not -LARGEST <= value < LARGEST:
        raise ValueError(f"{name} must fit into 64 bits; got a number of {value.bit_length()}")
    if float in allowed and type(value) is int:
        return
    if type(value) not in allowed:
        raise ValueError(f"{name} must be {' or '.join(t.__name__ for t in allowed)}; got {value!r}")
    if isinstance(value, tuple):
        _check_numbers(name, value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must be finite (null says 'no value'); got {value!r}")
    if isinstance(value, str) and not value.isascii():
        _check_text(name, value)


def _check_numbers(name: str, value: tuple[object, ...]) -> None:
    """Finite numbers, at any depth."""
    for one in value:
        if isinstance(one, tuple):
            _check_numbers(name, one)
        else:
            _check_type(name, one, (float,))


def _check_text(name: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can name and no file can hold
        raise ValueError(f"{name} must be text that UTF-8 can hold; got {value!r}") from None
