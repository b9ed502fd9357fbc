"""What the report's sections are made from, each of which stands only where its data do."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.telling.figures.style import Style, styles
from experiments.telling.rule import Rule
from experiments.telling.section import Section
from experiments.telling.setting import Setting

Plan = Mapping[str, Any]
Foretell = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, float]]


def nothing(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, float]:
    """Foretells no row."""
    return {}


@dataclass(frozen=True)
class Scene:
    """Settings in the report's order, its rule, the folder of its figures, and what is known beside the rows.

    ``others``: weights outside of the attention layers by model. ``plan``: the planner's numbers for the models of the
    rows, None where it has none. ``foretell``: us by key for those measured rows whose device's profile is known.
    ``aside``: settings that a question is not about: what it says of memory does not hold there.
    """

    pages: Sequence[Setting]
    rule: Rule
    folder: Path
    others: Mapping[str, int]
    plan: Plan | None = None
    foretell: Foretell = nothing
    aside: Sequence[Setting] = ()

    @property
    def shown(self) -> list[Setting]:
        """The settings without those aside."""
        return [page for page in self.pages if page not in self.aside]

    @property
    def looks(self) -> dict[str, Style]:
        """One style per variant of the whole report."""
        return styles(label for page in self.pages for label in page.variants)

    def known(self, kind: str, name: str | None) -> Plan | None:
        """A device or a model of the plan, by its name."""
        those = self.plan[kind] if self.plan else ()
        return next((it for it in those if it["name"].casefold() == str(name).casefold()), None)


Make = Callable[[Scene], list[Section]]


def stem_of(page: Setting, name: str) -> str:
    """The start of a figure's file names: the setting's, where there are several, and the figure's."""
    return f"{page.slug}-{name}" if page.slug else name
