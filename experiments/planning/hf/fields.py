"""Fields of a config by name: checked, with one clear line for what cannot be, and a note of where each came from."""

from collections.abc import Mapping
from typing import Any

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
AHEAD = "num_nextn_predict_layers"
LARGEST_COUNT = 2**40
MOST_LAYERS = 4096


class Unreadable(ValueError):
    """The file does not say what is needed; the message names the field."""


class Undecided(Exception):
    """A needed field is absent and its configuration class may know the default."""

    def __init__(self, class_name: str, field: str) -> None:
        super().__init__(f"{field} is absent; the class of model_type {class_name!r} may know its default")
        self.class_name = class_name
        self.field = field


class Fields:
    """One mapping of a config.

    ``path`` is where it stands in the file (``text_config.``), ``class_name`` the model type whose class may know
    defaults, None if no class does; ``defaults`` are that class's, once they have been asked for.
    """

    def __init__(
        self,
        raw: Mapping[str, Any],
        model_type: str,
        path: str = "",
        class_name: str | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.raw = raw
        self.model_type = model_type
        self.path = path
        self.class_name = class_name
        self.defaults = defaults
        self.sources: dict[str, str] = {}
        self.notes: list[str] = []

    def has(self, *names: str) -> bool:
        """Whether the file states one of ``names``, null not counted."""
        return any(self.raw.get(name) is not None for name in names)

    def called(self, *names: str) -> str:
        """The one of ``names`` that the file uses, the first if it uses none."""
        used = [name for name in names if name in self.raw]
        return next((name for name in used if self.raw[name] is not None), [*used, names[0]][0])

    def null(self, *names: str) -> bool:
        """Whether the file states nothing but null for ``names``."""
        return not self.has(*names) and any(name in self.raw for name in names)

    def nested(self, name: str) -> "Fields":
        """The mapping under ``name`` (empty where absent or null); its sources and notes are this one's."""
        inner = self.raw.get(name)
        if inner is not None and not isinstance(inner, dict):
            raise self.wrong(name, "must be an object", inner)
        found = Fields(inner or {}, self.model_type, f"{self.path}{name}.")
        found.sources, found.notes = self.sources, self.notes
        return found

    def stated(self, *names: str) -> Any:
        """The value of the first of ``names``, else of the others, which must agree; None if none is stated."""
        found = [(name, self.raw[name]) for name in names if self.raw.get(name) is not None]
        if self.raw.get(names[0]) is not None:
            found = found[:1]  # the usual name counts; what stands beside it is left over
        if not found:
            return None
        first, value = found[0]
        for other, theirs in found[1:]:
            if theirs != value:
                raise Unreadable(f"{self.path}{first}={value!r} and {self.path}{other}={theirs!r} must agree")
        self.sources[names[0]] = f"{_short(value)} from config {self.path}{first}"
        return value

    def count(self, *names: str) -> int:
        """A whole number >= 1 that is needed: from the file, else the class's default."""
        value = self.asked_count(*names)
        if value is None:
            why = "null" if self.null(*names) else "missing"
            called = self.called(*names)
            others = [name for name in names if name != called]
            also = f" (nor is {', '.join(others)} there)" if others and why == "missing" else ""
            raise Unreadable(f"{self.path}{called} is {why}{also}, and model_type {self.model_type!r} needs it")
        return value

    def optional_count(self, *names: str) -> int | None:
        """A whole number >= 1, or None where the file has none or null."""
        value = self.stated(*names)
        return None if value is None else self.checked(self.called(*names), value)

    def asked_count(self, *names: str) -> int | None:
        """Like ``optional_count``, but an absent field means what its class's default says."""
        value = self.stated(*names)
        if value is None and not self.null(*names):
            value = self.default(*names)
        return None if value is None else self.checked(self.called(*names), value)

    def checked(self, name: str, value: Any, most: int = LARGEST_COUNT) -> int:
        """``value`` as a count; Unreadable naming ``name`` if it is none."""
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.wrong(name, f"must be a whole number from 1 to {most}", value)
        return value

    def index(self, name: str, otherwise: int) -> int:
        """A whole number >= 0, ``otherwise`` where absent or null."""
        value = self.stated(name)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_COUNT:
            raise self.wrong(name, f"must be a whole number from 0 to {LARGEST_COUNT}", value)
        return value

    def flag(self, name: str, otherwise: bool) -> bool:
        """True or false, ``otherwise`` where absent or null."""
        value = self.stated(name)
        if value is None:
            self.sources[name] = f"{otherwise} derived: not in the file"
            return otherwise
        if not isinstance(value, bool):
            raise self.wrong(name, "must be true or false", value)
        return value

    def rows(self, name: str, length: int | None) -> list[Any] | None:
        """A list, of ``length`` entries (one per layer) if given, or None where absent or null.

        Entries of the layers that predict further tokens may follow; these are no part of the decoder and left out.
        """
        value = self.stated(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self.wrong(name, f"must be a list of at most {MOST_LAYERS} entries", value)
        if length is None or len(value) == length:
            return value
        ahead = self.raw.get(AHEAD)
        if type(ahead) is int and ahead > 0 and len(value) == length + ahead:
            return value[:length]
        beside = f", {AHEAD}={_short(ahead)}" if ahead else ""
        raise Unreadable(
            f"{self.path}{name} must have one entry per layer; "
            f"got {len(value)} entries, {self.called(*LAYERS)}={length}{beside}"
        )

    def marks(self, name: str, length: int, meaning: str = "0 and 1") -> list[bool] | None:
        """A list of 0 and 1, one per layer, or None where absent or null; ``meaning`` names the two in an error."""
        value = self.rows(name, length)
        if value is not None and any(isinstance(mark, bool) or mark not in (0, 1) for mark in value):
            raise self.wrong(name, f"must hold {meaning}", value)
        return None if value is None else [mark == 1 for mark in value]

    def numbered(self, name: str, layers: int) -> set[int] | None:
        """A list of layer numbers from 0, or None where absent or null."""
        value = self.rows(name, None)
        if value is None:
            return None
        if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i < layers for i in value):
            raise self.wrong(name, f"must hold layer numbers below {self.called(*LAYERS)}={layers}", value)
        return set(value)

    def word(self, name: str) -> str | None:
        """A string, or None where absent or null."""
        value = self.stated(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "must be a string", value)
        return value

    def default(self, *names: str) -> Any:
        """The class's default for the first of ``names`` it has, None if it has none or it is null.

        Raises Undecided where the class has not been asked yet.
        """
        if self.class_name is None:
            return None
        if self.defaults is None:
            raise Undecided(self.class_name, names[0])
        for name in names:
            value = self.defaults.get(name)
            if value is not None:
                self.sources[name] = f"{_short(value)} class default of {self.class_name}"
                self.notes.append(f"assumed class default {name}={_short(value)}")
                return value
        return None

    def derived(self, name: str, value: int, how: str) -> int:
        """Note that ``value`` of ``name`` follows from other fields."""
        self.sources[name] = f"{value} derived: {how}"
        return value

    def without(self, *names: str) -> None:
        """Note that the file has none of ``names``, or null, and that nothing takes its place."""
        said = (
            f"None from config {self.path}{self.called(*names)}"
            if self.null(*names)
            else "None derived: not in the file"
        )
        self.sources[names[0]] = said

    def pattern(self, name: str, how: str) -> None:
        """Note that the file has no ``name``, and what the family's own rule is."""
        self.sources[name] = f"derived: {how} (the rule of {self.model_type}, not in the file)"

    def missing(self, name: str) -> Unreadable:
        """The error for a field that is needed and not there."""
        return Unreadable(f"{self.path}{name} is missing, and model_type {self.model_type!r} needs it")

    def wrong(self, name: str, expected: str, value: Any) -> Unreadable:
        """The error for a value that cannot be."""
        return Unreadable(f"{self.path}{name} {expected}; got {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
