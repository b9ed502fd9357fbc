"""The stated rule applied to candidates: one of four verdicts, why, and what would settle it where it is not."""

import math
from collections.abc import Mapping, Sequence

from experiments.telling.candidates import Absent, Candidate
from experiments.telling.doubt import could_turn
from experiments.telling.frame import distinct
from experiments.telling.missing import Miss, closest
from experiments.telling.places import Place
from experiments.telling.rule import Rule
from experiments.telling.words import exact_bytes, percent, speed, times
from variants.contract.tokens import format_tokens

CLEARLY_INFEASIBLE = ("refused", "too_large")
NONE = "none"
NOT_ENOUGH = "not enough evidence"
Outcome = tuple[str, tuple[str, ...], list[str], str | None]


def ties(a: Candidate, b: Candidate, rule: Rule) -> str | None:
    """Why two times cannot be told apart, or None if they can."""
    fast, slow = sorted((a, b), key=lambda c: c.us)
    if slow.low is not None and fast.high is not None and slow.low <= fast.high:
        return "their confidence intervals overlap"
    if slow.us <= fast.us * rule.tie_ratio:
        return f"the ratio is within the tie ratio of {rule.tie_ratio:g}"
    off = within_doubt(fast, slow)
    if off is not None and slow.us <= fast.us * off:
        return f"predictions that are off by {_doubts(fast, slow)} could turn a ratio of up to {times(off)}"
    return None


def within_doubt(fast: Candidate, slow: Candidate) -> float | None:
    """The largest ratio that both predictions' errors could turn; None where one of them is unknown, or measured."""
    return could_turn(fast.doubt, slow.doubt)


def grouped(missing: Sequence[Absent]) -> list[str]:
    """``mqa, mla (never run)``: the absent with their reason, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for a in missing:
        by_reason.setdefault(a.why, []).append(a.variant)
    return [f"{', '.join(names)} ({why})" for why, names in by_reason.items()]


def outcome_of(
    found: Sequence[Candidate],
    missed: Mapping[str, Sequence[Miss]],
    unknown: Mapping[str, Sequence[str]],
    missing: Sequence[Absent],
    rule: Rule,
    places: Sequence[Place],
) -> Outcome:
    """The outcome among those that meet the needs; where none does, which comes closest.

    What cannot be held against a need competes, but nothing is chosen that nobody knows to meet it.
    """
    able = [c for c in found if not missed.get(c.variant)]
    if found and not able:
        return NONE, (), [], closest(list(missed.values()))
    told = _only(able[0]) if len(able) == 1 < len(found) else _compared(able, missing, rule, places)
    told = (*told[:2], [*told[2], *_beside(found, able, told[1], rule), *_bare(found)], told[3])
    doubtful = [(winner, why) for winner in told[1] for why in unknown.get(winner, ())]
    if not doubtful:
        return told
    lacks = [f"{winner} would be chosen by its time, but {why}." for winner, why in doubtful]
    then = " and ".join(dict.fromkeys(f"{winner}: {why}" for winner, why in doubtful))
    return NOT_ENOUGH, (), [*told[2], *lacks], f"What is asked for and not known: {then}."


def _beside(found: Sequence[Candidate], able: Sequence[Candidate], winners: Sequence[str], rule: Rule) -> list[str]:
    """How those that were ruled out stand to what was chosen: whether a need alone decided."""
    by = {c.variant: c for c in found}
    said = []
    for out in (c for c in found if c not in able and len(winners) == 1):
        chosen = by[winners[0]]
        fast, slow = sorted((chosen, out), key=lambda c: c.us)
        why = ties(chosen, out, rule) or _beyond(fast, slow, rule)
        said.append(
            f"Had it met the needs: {speed(out.variant, out.us, chosen.variant, chosen.us)} ({out.said}): {why}."
        )
    return said


def _only(one: Candidate) -> Outcome:
    reason = f"{one.variant} is the only one that meets what is asked for: {one.said}."
    return f"choose {one.variant}", (one.variant,), [reason], None


def _compared(found: Sequence[Candidate], missing: Sequence[Absent], rule: Rule, places: Sequence[Place]) -> Outcome:
    if not found and missing and all(a.status in CLEARLY_INFEASIBLE for a in missing):
        return NONE, (), [f"{a.variant}: {a.why}." for a in missing], _relax(missing)
    if len(found) < 2:
        have = [f"{c.variant} has an ok {rule.scope} row ({c.row})." for c in found]
        lacks = [f"Without one: {a}." for a in grouped(missing)]
        return NOT_ENOUGH, (), [*have, *lacks], _measure(missing, rule, places)
    return _ranked(found, rule)


def _ranked(found: Sequence[Candidate], rule: Rule) -> Outcome:
    order = sorted(found, key=lambda c: (c.us, c.variant))
    fastest, rest = order[0], order[1:]
    reasons = [f"{fastest.variant} has the shortest {rule.scope} of {len(order)} compared: {fastest.said}."]
    tied = [fastest]
    for other in rest:
        why = ties(fastest, other, rule)
        said = f"{speed(other.variant, other.us, fastest.variant, fastest.us)} ({other.said})"
        reasons.append(f"{said}: {f'a tie, because {why}' if why else _beyond(fastest, other, rule)}.")
        tied += [other] if why else []
    if len(tied) == 1:
        return f"choose {fastest.variant}", (fastest.variant,), reasons, None
    fewest = min(c.size for c in tied)
    winners = sorted(c.variant for c in tied if c.size == fewest)
    sizes = ", ".join(f"{c.variant} {exact_bytes(c.bytes)} ({c.row})" for c in tied)
    reasons.append(f"Cache bytes of the tied, whole batch, one layer: {sizes}; fewest: {', '.join(winners)}.")
    if len(winners) > 1 and rule.question.own in winners:
        reasons.append(f"{rule.question.own} is what the model has: nothing need be converted or trained.")
        winners = [str(rule.question.own)]
    if len(winners) == 1:
        return f"choose {winners[0]}", tuple(winners), reasons, None
    return " or ".join(winners), tuple(winners), reasons, _separate(winners, found, rule)


def _bare(found: Sequence[Candidate]) -> list[str]:
    """What times without an interval were compared by."""
    bare = [c for c in found if c.low is None]
    if not bare or len(found) < 2:
        return []
    if any(c.doubt is None for c in bare):
        return ["Rows without a confidence interval were compared by the tie ratio alone."]
    each = ", ".join(f"{c.variant} {percent(c.doubt)}" for c in bare)
    beyond = [f"{c.variant} is extrapolated ({c.outside}): it may be further off." for c in bare if c.outside]
    return [
        "Predicted rows have no confidence interval; they were compared by the tie ratio and by how far nine of ten "
        f"held-out predictions are off at most: {each}. That was found for the attention alone; nothing holds the "
        "step's projections against measurements.",
        *beyond,
    ]


def _doubts(fast: Candidate, slow: Candidate) -> str:
    return f"{percent(fast.doubt)} ({fast.variant}) and {percent(slow.doubt)} ({slow.variant})"


def _beyond(a: Candidate, b: Candidate, rule: Rule) -> str:
    if a.high is not None and b.high is not None:
        return "beyond noise"
    off = within_doubt(a, b)
    if off is not None:
        return f"beyond what predictions are off by, {times(off)} at most with {_doubts(a, b)}"
    return f"beyond the tie ratio of {rule.tie_ratio:g}, with no interval to hold it against"


def _relax(missing: Sequence[Absent]) -> str:
    """By how much is in each reason, as far as whoever refused said so."""
    least = min(missing, key=lambda a: (a.status != "too_large", a.size, a.variant))
    said = f"{least.variant} comes closest: {least.why}. " if least.size < math.inf else ""
    return f"{said}A smaller batch, context or dtype, or a machine with more memory, would change that."


def _separate(winners: Sequence[str], found: Sequence[Candidate], rule: Rule) -> str:
    names = " and ".join(winners)
    if any(c.low is None for c in found if c.variant in winners):
        return f"Measure {rule.scope} of {names} at this point: rows without an interval cannot tell them apart."
    return f"More rounds of {names} at this point until their {rule.scope} intervals separate, or a longer context."


def _measure(missing: Sequence[Absent], rule: Rule, places: Sequence[Place]) -> str:
    names = ", ".join(a.variant for a in missing) or "a second variant"
    contexts = distinct(place.context for place in places)
    at = f" at context {' and '.join(map(format_tokens, contexts))}" if contexts else ""
    return f"An ok {rule.scope} row of {names}{at} in this setting."
