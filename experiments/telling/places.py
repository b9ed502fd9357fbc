"""The points that an outcome is of: one, or a mix of contexts and batches, each with its share of the tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.telling.candidates import (
    NO_DOUBTS,
    Absent,
    Candidate,
    absence,
    at_point,
    decision_context,
    scope_rows,
)
from experiments.telling.doubt import Doubts
from experiments.telling.frame import family_order
from experiments.telling.mix import Mix
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting
from experiments.telling.words import number, percent
from variants.contract.tokens import format_tokens


@dataclass(frozen=True)
class Place:
    """A context in a setting, and the share of the decoded tokens that is decoded there."""

    setting: Setting
    context: int | None
    share: float


def places_of(family: Sequence[Setting], rule: Rule) -> list[Place]:
    """Every point of the rule's mix; ``family`` are settings that differ in their batch alone, one per batch asked."""
    batches = dict(rule.batch.shares) if rule.batch and len(family) > 1 else {}
    found = []
    for setting in family:
        share = batches.get(setting.values["batch"], 1.0)
        if rule.context is None:
            found.append(Place(setting, decision_context(scope_rows(setting, rule.scope), rule), share))
            continue
        found += [Place(setting, context, share * part) for context, part in rule.context.shares]
    return found


def compete(places: Sequence[Place], scope: str, doubts: Doubts = NO_DOUBTS) -> tuple[str | None, list[Candidate]]:
    """The temperature compared and the variants that have an ok row of it at every place; of several places means."""
    each = [at_point(place.setting, scope, place.context, doubts) for place in places]
    if len(each) == 1:
        return each[0]
    temperatures = [temperature for temperature, found in each if found]
    if not temperatures:
        return None, []
    temperature = max(sorted(set(temperatures), key=str), key=temperatures.count)
    at = [{c.variant: c for c in found} if t == temperature else {} for t, found in each]
    complete = [v for v in at[0] if all(v in here for here in at)]
    return temperature, [_mean(places, [here[v] for here in at]) for v in sorted(complete, key=family_order)]


def absent(places: Sequence[Place], rule: Rule, found: Sequence[Candidate], known: Sequence[str]) -> list[Absent]:
    """Every variant ``known`` to the report or expected by the rule that is not among ``found``, though asked about."""
    competing = {c.variant for c in found}
    missing = sorted((v for v in known if v not in competing and rule.question.asks(v)), key=family_order)
    attentions = {v.split(" (")[0] for v in known}
    wanted = dict.fromkeys((*rule.expected, *(rule.question.variants or ())))
    never = [v for v in wanted if rule.question.asks(v) and v not in attentions and v not in known]
    return [
        *(_lacking(variant, places, rule.scope) for variant in missing),
        *(Absent(v, "never run: the records hold no row of it", None) for v in never),
    ]


def spot(places: Sequence[Place], place: Place) -> str:
    """What tells a place from the others of a mix: ``context 8k``, ``batch 4, context 8k``; nothing of an only one."""
    said = []
    if len({p.setting.values["batch"] for p in places}) > 1:
        said.append(f"batch {place.setting.values['batch']}")
    if len({p.context for p in places}) > 1 and place.context is not None:
        said.append(f"context {format_tokens(place.context)}")
    return ", ".join(said)


def at_mix(mix: Mix | None, nothing: str) -> str:
    """A mix in words."""
    return nothing if mix is None else str(mix)


def _lacking(variant: str, places: Sequence[Place], scope: str) -> Absent:
    """Why, by the first place at which it has no ok row; else by the first one."""
    for place in places:
        rows = [r for r in scope_rows(place.setting, scope) if r["label"] == variant]
        if not any(r["status"] == "ok" and r["context"] == place.context for r in rows):
            break
    else:
        place = places[0]
        rows = [r for r in scope_rows(place.setting, scope) if r["label"] == variant]
    return absence(variant, rows, place.context)


def _mean(places: Sequence[Place], parts: Sequence[Candidate]) -> Candidate:
    """One variant over all places; bounds and doubt are what they are if all of them err to the same side."""
    shares = [place.share for place in places]

    def mean(values: Sequence[float]) -> float:
        return sum(share * value for share, value in zip(shares, values, strict=True))

    lows, highs = [c.low for c in parts if c.low is not None], [c.high for c in parts if c.high is not None]
    sizes = [c.bytes for c in parts if c.bytes is not None]
    doubts = [c.doubt for c in parts if c.doubt is not None]
    known = len(lows) == len(highs) == len(parts)
    us, keys = mean([c.us for c in parts]), tuple(key for c in parts for key in c.keys)
    at = "; ".join(
        f"{percent(place.share)} at {spot(places, place)}: {c.said}" for place, c in zip(places, parts, strict=True)
    )
    return Candidate(
        parts[0].variant,
        us,
        mean(lows) if known else None,
        mean(highs) if known else None,
        round(mean(sizes)) if len(sizes) == len(parts) else None,
        f"mean {number(us)} us ({at})",
        tuple(share for c in parts for share in c.shares),
        keys,
        max(doubts) if len(doubts) == len(parts) else None,
        parts[0].outside,
    )
