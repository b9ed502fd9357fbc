"""What a question makes of the settings: it is about some, some tell what would flip it, and some stand aside."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.telling.decision import Decision
from experiments.telling.families import related
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting


@dataclass(frozen=True)
class Focus:
    """Without a question all settings are alike: none is ``near``, none ``beyond``.

    ``about``: the settings that are decided. ``near``: the question's machine and model at another tp or batch, which
    have no figures of their own. ``beyond``: other machines or models.
    """

    pages: Sequence[Setting]
    about: Sequence[Setting]
    near: Sequence[Setting] = ()
    beyond: Sequence[Setting] = ()

    @classmethod
    def of(cls, pages: Sequence[Setting], decisions: Sequence[Decision], rule: Rule) -> "Focus":
        """What the decisions of a rule are about."""
        about = [place.setting for decision in decisions for place in decision.places]
        if not rule.asks:
            return cls(pages, about)
        mine = [page for page in pages if any(related(page, it) for it in about)]
        return cls(
            pages, about, [page for page in mine if page not in about], [page for page in pages if page not in mine]
        )

    @property
    def silent(self) -> frozenset[int]:
        """Numbers of the settings without figures."""
        return frozenset(self._numbered(self.near))

    @property
    def aside(self) -> list[Setting]:
        """Those at a tp, or of a machine or model, that the question is not about, and so its memory neither."""
        asked = {page.values["tp"] for page in self.about}
        return [*(page for page in self.near if page.values["tp"] not in asked), *self.beyond]

    @property
    def numbered(self) -> dict[int, Setting]:
        """The settings beyond, by number."""
        return self._numbered(self.beyond)

    @property
    def parts(self) -> tuple[Sequence[Setting], Sequence[Setting]]:
        """Settings of the question's own machine and model, and those beyond."""
        return [page for page in self.pages if page not in self.beyond], self.beyond

    def _numbered(self, some: Sequence[Setting]) -> dict[int, Setting]:
        return {n: page for n, page in enumerate(self.pages, start=1) if page in some}
