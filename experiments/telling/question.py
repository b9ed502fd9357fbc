"""Which decision a report is about: a model on devices, split in so many ranks, and the variants to choose from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from experiments.telling.frame import distinct
from experiments.telling.setting import Setting


@dataclass(frozen=True)
class Question:
    """Null is: whatever the records hold, each on its own.

    ``text`` is the question as people ask it. ``model``, ``device`` and ``tp`` say which settings it is about; rows of
    others stand beside it. Only ``variants`` compete. ``own`` is what the model has now: ratios and flips are told
    against it, memory after weights is given for its weights, and it is kept where nothing tells it from a winner.
    Raises ValueError naming the field.
    """

    text: str | None = None
    model: str | None = None
    device: str | None = None
    tp: int | None = None
    variants: tuple[str, ...] | None = None
    own: str | None = None

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> "Question":
        """Build from a config mapping; ValueError names an unknown or missing field."""
        known = [f.name for f in fields(Question)]
        wrong = sorted({*raw} ^ {*known})
        if wrong:
            raise ValueError(f"report.question must have exactly the fields {', '.join(known)}; check {wrong[0]!r}")
        for name in ("text", "model", "device", "own"):
            if not (raw[name] is None or (isinstance(raw[name], str) and raw[name].strip())):
                raise ValueError(f"report.question.{name} must be a text or null; got {raw[name]!r}")
        tp, variants = raw["tp"], raw["variants"]
        if tp is not None and (isinstance(tp, bool) or not isinstance(tp, int) or tp < 1):
            raise ValueError(f"report.question.tp must be a whole number of ranks >= 1 or null; got {tp!r}")
        if variants is not None and not _names(variants):
            raise ValueError(f"report.question.variants must be a list of two names or more, or null; got {variants!r}")
        asked = None if variants is None else tuple(variants)
        if asked and raw["own"] and raw["own"] not in asked:
            raise ValueError(f"report.question.own must be one of its variants {', '.join(asked)}; got {raw['own']!r}")
        return Question(raw["text"], raw["model"], raw["device"], tp, asked, raw["own"])

    def asks(self, variant: str) -> bool:
        """Whether a variant, by its label or its attention's name, is one to choose from."""
        return self.variants is None or not {variant, variant.split(" (")[0]}.isdisjoint(self.variants)

    def about(self, pages: Sequence[Setting]) -> list[Setting]:
        """The settings it is about. ValueError says which field none of them has, and what they have."""
        chosen = list(pages)
        for name in ("model", "device", "tp"):
            wanted = getattr(self, name)
            found = [page for page in chosen if wanted is None or _alike(page.values[name], wanted)]
            if not found:
                there = ", ".join(map(str, distinct(page.values[name] for page in chosen)))
                raise ValueError(f"report.question.{name} must be one that was run, of {there}; got {wanted}")
            chosen = found
        return chosen


def _alike(value: object, wanted: object) -> bool:
    return str(value).casefold() == str(wanted).casefold()


def _names(value: object) -> bool:
    listed = isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 1
    return listed and all(isinstance(name, str) and name for name in value)  # type: ignore[attr-defined]
