"""The outcome of one setting, computed by the rule; every sentence names the rows it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from experiments.telling.candidates import Absent, Candidate, Share, absent, at_point, decision_context, scope_rows
from experiments.telling.frame import distinct
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting
from experiments.telling.whole import Miss, Whole, closest, misses, wholes
from experiments.telling.words import exact_bytes, percent, speed
from variants.contract.tokens import format_tokens

CLEARLY_INFEASIBLE = ("refused", "too_large")
NONE = "none"
NO_OTHERS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True)
class Decision:
    """What the rule says of a setting.

    ``verdict`` is ``choose X``, ``X or Y``, ``not enough evidence`` or ``none``; ``winners`` are the variants it names.
    ``reasons`` say how it was reached, ``next_step`` which measurement would settle it (null where it is settled).
    ``wholes`` are the candidates in the whole model; ``ruled_out`` says which needs which of them do not meet.
    ``kernel_limited`` maps a variant to the sentence that says so; ``caution`` stands where a winner or the runner-up
    is among them: then it is no verdict on the architectures.
    """

    setting: Setting
    verdict: str
    winners: tuple[str, ...]
    context: int | None
    temperature: str | None
    candidates: tuple[Candidate, ...]
    absent: tuple[Absent, ...]
    reasons: tuple[str, ...]
    next_step: str | None
    kernel_limited: dict[str, str]
    caution: str | None
    wholes: tuple[Whole, ...] = ()
    ruled_out: tuple[str, ...] = ()

    @property
    def point(self) -> str:
        """The decision point in words; the batch is the setting's."""
        return "no context" if self.context is None else f"context {format_tokens(self.context)}"

    @property
    def not_compared(self) -> list[str]:
        """The absent variants with the reasons, where others could be compared."""
        return grouped(self.absent) if len(self.candidates) > 1 else []


def decide(setting: Setting, rule: Rule, everywhere: Sequence[str], others: Mapping[str, int] = NO_OTHERS) -> Decision:
    """Apply ``rule`` to a setting; ``everywhere`` are the variants that have rows in any setting of the report.

    ``others``: weights outside of the attention layers by model, where they are known.
    """
    rows = scope_rows(setting, rule.scope)
    context = decision_context(rows, rule)
    temperature, found = at_point(setting, rule.scope, context)
    missing = absent(rows, rule, context, found, everywhere)
    measured = [] if setting.predicted else found  # a predicted time says nothing of a kernel
    flags = {c.variant: _kernel_limited(c, rule) for c in measured if below_roof(c, rule)}
    whole = wholes(setting, found, (context, temperature), rule.needs, others)
    missed = {w.variant: misses(w, rule.needs) for w in whole}
    verdict, winners, reasons, next_step = _able(found, missed, missing, rule, context)
    caution = _caution(measured, winners, rule) if winners else None
    compared = tuple(found), tuple(missing), tuple(reasons)
    out = tuple(f"{miss.variant} is ruled out: {miss.said}." for several in missed.values() for miss in several)
    said = (verdict, winners, context, temperature, *compared, next_step, flags, caution)
    return Decision(setting, *said, tuple(whole), out)


def decide_all(pages: Sequence[Setting], rule: Rule, others: Mapping[str, int] = NO_OTHERS) -> list[Decision]:
    """One decision per setting of the rule's batch. Raises ValueError if no setting has that batch."""
    everywhere = sorted({v for page in pages for v in page.variants})
    chosen = [p for p in pages if rule.batch is None or p.values["batch"] == rule.batch]
    if not chosen:
        batches = distinct(p.values["batch"] for p in pages)
        raise ValueError(f"report.batch must be a batch that was run, one of {batches}; got {rule.batch}")
    return [decide(page, rule, everywhere, others) for page in chosen]


def ties(a: Candidate, b: Candidate, rule: Rule) -> str | None:
    """Why two times cannot be told apart, or None if they can."""
    fast, slow = sorted((a, b), key=lambda c: c.us)
    if slow.low is not None and fast.high is not None and slow.low <= fast.high:
        return "their confidence intervals overlap"
    if slow.us <= fast.us * rule.tie_ratio:
        return f"the ratio is within the tie ratio of {rule.tie_ratio:g}"
    return None


def grouped(missing: Sequence[Absent]) -> list[str]:
    """``mqa, mla (never run)``: the absent with their reason, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for a in missing:
        by_reason.setdefault(a.why, []).append(a.variant)
    return [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]


_Outcome = tuple[str, tuple[str, ...], list[str], str | None]


def _able(
    found: Sequence[Candidate],
    missed: Mapping[str, Sequence[Miss]],
    missing: Sequence[Absent],
    rule: Rule,
    context: int | None,
) -> _Outcome:
    """The outcome among those that meet the needs; where none does, which comes closest."""
    able = [c for c in found if not missed.get(c.variant)]
    if found and not able:
        return NONE, (), [], closest(list(missed.values()))
    if len(able) == 1 < len(found):
        return _only(able[0])
    return _outcome(able, missing, rule, context)


def _only(one: Candidate) -> _Outcome:
    reason = f"{one.variant} is the only one that meets what is asked for: {one.said}."
    return f"choose {one.variant}", (one.variant,), [reason], None


def _outcome(found: Sequence[Candidate], missing: Sequence[Absent], rule: Rule, context: int | None) -> _Outcome:
    if not found and missing and all(a.status in CLEARLY_INFEASIBLE for a in missing):
        return NONE, (), [f"{a.variant}: {a.why}." for a in missing], _relax()
    if len(found) < 2:
        have = [f"{c.variant} has an ok {rule.scope} row ({c.row})." for c in found]
        lacks = [f"Without one: {a}." for a in grouped(missing)]
        return "not enough evidence", (), [*have, *lacks], _measure(missing, rule, context)
    return _ranked(found, rule)


def _ranked(found: Sequence[Candidate], rule: Rule) -> _Outcome:
    order = sorted(found, key=lambda c: (c.us, c.variant))
    fastest, rest = order[0], order[1:]
    reasons = [f"{fastest.variant} has the shortest {rule.scope} of {len(order)} compared: {fastest.said}."]
    tied = [fastest]
    for other in rest:
        why = ties(fastest, other, rule)
        said = f"{speed(other.variant, other.us, fastest.variant, fastest.us)} ({other.said})"
        reasons.append(f"{said}: {f'a tie, because {why}' if why else _beyond(fastest, other, rule)}.")
        tied += [other] if why else []
    if any(c.low is None for c in found):
        reasons.append("Rows without a confidence interval were compared by the tie ratio alone.")
    if len(tied) == 1:
        return f"choose {fastest.variant}", (fastest.variant,), reasons, None
    fewest = min(c.size for c in tied)
    winners = sorted(c.variant for c in tied if c.size == fewest)
    sizes = ", ".join(f"{c.variant} {exact_bytes(c.bytes)} ({c.row})" for c in tied)
    reasons.append(f"Cache bytes of the tied, whole batch, one layer: {sizes}; fewest: {', '.join(winners)}.")
    if len(winners) == 1:
        return f"choose {winners[0]}", tuple(winners), reasons, None
    return " or ".join(winners), tuple(winners), reasons, _separate(winners, rule)


def _beyond(a: Candidate, b: Candidate, rule: Rule) -> str:
    known = a.high is not None and b.high is not None
    return (
        "beyond noise" if known else f"beyond the tie ratio of {rule.tie_ratio:g}, with no interval to hold it against"
    )


def below_roof(candidate: Candidate, rule: Rule) -> list[Share]:
    """The scopes in which the variant's best row at the point stays below the rule's share of the roofline."""
    return [share for share in candidate.shares if share.fraction < rule.kernel_limited_below]


def _kernel_limited(candidate: Candidate, rule: Rule) -> str:
    reach = _reach(below_roof(candidate, rule))
    return f"{candidate.variant} is kernel-limited: {reach}, so its time is this kernel's, not the architecture's."


def _caution(found: Sequence[Candidate], winners: Sequence[str], rule: Rule) -> str | None:
    """Said where what decides, a winner's time or the runner-up's, is far from what the hardware allows."""
    order = sorted(found, key=lambda c: (c.us, c.variant))
    best, rest = [c for c in order if c.variant in winners], [c for c in order if c.variant not in winners]
    held = [(c, below_roof(c, rule)) for c in (*best, *rest[:1])]
    limited = [
        f"{c.variant} ({'chosen' if c in best else 'runner-up'}; {_reach(shares)})" for c, shares in held if shares
    ]
    if not limited:
        return None
    reversible = len(best) > 1 or any(shares for c, shares in held if c not in best)
    then = "a better kernel may reverse this outcome" if reversible else "a better kernel would only help it"
    return f"The kernel, not the architecture, sets the time of {' and of '.join(limited)}: {then}."


def _reach(shares: Sequence[Share]) -> str:
    """``attend at 15 % of its roofline, row ..., and step at 36 % of its roofline, row ...``."""
    return ", and ".join(f"{s.scope} at {percent(s.fraction)} of its roofline, row {s.key}" for s in shares)


def _relax() -> str:
    return "Nothing fits here: a smaller batch, context or dtype, or a machine with more memory, would change that."


def _separate(winners: Sequence[str], rule: Rule) -> str:
    names = " and ".join(winners)
    return f"More rounds of {names} at this point until their {rule.scope} intervals separate, or a longer context."


def _measure(missing: Sequence[Absent], rule: Rule, context: int | None) -> str:
    names = ", ".join(a.variant for a in missing) or "a second variant"
    at = "" if context is None else f" at context {format_tokens(context)}"
    return f"An ok {rule.scope} row of {names}{at} in this setting."
