"""What the same rule says in settings that the question is not about: beside the outcome, and never part of it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from experiments.telling.candidates import NO_DOUBTS, Candidate
from experiments.telling.decision import Decision, decide
from experiments.telling.doubt import Doubts
from experiments.telling.mix import Mix
from experiments.telling.needs import Needs
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting
from experiments.telling.tables import Table
from experiments.telling.words import NOTHING
from variants.contract.tokens import format_tokens

HEADER = (
    "setting",
    "context",
    "outcome there, without the needs",
    "fastest first",
    "in the question's setting",
    "rows",
)


def aside_table(
    numbered: Mapping[int, Setting],
    about: Sequence[Setting],
    rule: Rule,
    others: Mapping[str, int],
    doubts: Doubts = NO_DOUBTS,
) -> Table:
    """A line per setting beside the question and context: who is fastest there, and there in the question's own rows.

    Orders are put beside each other, never times: they are of two machines.
    """
    lines = []
    for number, page in numbered.items():
        same = [it for it in about if it.values["tp"] == page.values["tp"]]
        home = next((it for it in same if it.values["batch"] == page.values["batch"]), None)
        for context in page.contexts(rule.scope):
            told = _there(page, context, rule, others, doubts)
            ours = _there(home, context, rule, others, doubts) if home else None
            if len(told.candidates) < 2:
                continue
            order = _order(told.candidates)
            beside = _order(ours.candidates) if ours and len(ours.candidates) > 1 else NOTHING
            keys = ", ".join(c.key for c in told.candidates)
            lines.append((str(number), format_tokens(context), told.verdict, order, beside, keys))
    return Table(HEADER, tuple(lines))


def _there(page: Setting, context: int, rule: Rule, others: Mapping[str, int], doubts: Doubts) -> Decision:
    at = replace(rule, batch=None, context=Mix.of(context), needs=Needs(), expected=())
    return decide([page], at, page.variants, others, doubts)


def _order(candidates: Sequence[Candidate]) -> str:
    return ", ".join(c.variant for c in sorted(candidates, key=lambda c: (c.us, c.variant)))
