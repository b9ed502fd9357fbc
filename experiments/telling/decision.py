"""The outcome of one setting, computed by the rule; every sentence names the rows it rests on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from experiments.telling.candidates import NO_DOUBTS, Absent, Candidate, Share
from experiments.telling.doubt import Doubts
from experiments.telling.families import families
from experiments.telling.frame import distinct
from experiments.telling.missing import misses, untold
from experiments.telling.mix import Mix
from experiments.telling.outcome import grouped, outcome_of
from experiments.telling.places import Place, absent, compete, places_of
from experiments.telling.rule import Rule
from experiments.telling.setting import Setting
from experiments.telling.whole import Whole, wholes
from experiments.telling.words import percent
from variants.contract.tokens import format_tokens

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
    places: tuple[Place, ...] = ()

    @property
    def point(self) -> str:
        """The decision point in words; the batch is the setting's."""
        contexts = {p.context: sum(q.share for q in self.places if q.context == p.context) for p in self.places}
        if len(contexts) > 1 and None not in contexts:
            return f"context {Mix(tuple((c or 0, share) for c, share in sorted(contexts.items())))}"
        return "no context" if self.context is None else f"context {format_tokens(self.context)}"

    @property
    def batch(self) -> str:
        """Sequences in the batch, or the mix of batches."""
        batches = {
            p.setting.values["batch"]: sum(q.share for q in self.places if q.setting is p.setting) for p in self.places
        }
        if len(batches) > 1:
            return str(Mix(tuple(sorted(batches.items()))))
        batch = self.setting.values["batch"]
        return "unknown" if batch is None else str(batch)

    @property
    def not_compared(self) -> list[str]:
        """The absent variants with the reasons, where others could be compared."""
        return grouped(self.absent) if len(self.candidates) > 1 else []


def decide(
    family: Sequence[Setting],
    rule: Rule,
    everywhere: Sequence[str],
    others: Mapping[str, int] = NO_OTHERS,
    doubts: Doubts = NO_DOUBTS,
) -> Decision:
    """Apply ``rule`` to a setting, or to several that differ in their batch alone where it mixes batches.

    ``everywhere`` are the variants that have rows in any setting of the report, ``others`` weights outside of the
    attention layers by model, where they are known, ``doubts`` how far predicted rows are off.
    """
    setting, places = family[0], places_of(family, rule)
    temperature, competing = compete(places, rule.scope, doubts)
    found = [c for c in competing if rule.question.asks(c.variant)]
    missing = absent(places, rule, found, everywhere)
    measured = [] if setting.predicted else found  # a predicted time says nothing of a kernel
    flags = {c.variant: _kernel_limited(c, rule) for c in measured if below_roof(c, rule)}
    whole = wholes(places, found, temperature, rule.needs, others, rule.question.own)
    by = {c.variant: [w for w in whole if w.variant == c.variant] for c in found}
    missed = {variant: misses(its, rule.needs) for variant, its in by.items()}
    unknown = {variant: untold(its, rule.needs) for variant, its in by.items() if not missed[variant]}
    verdict, winners, reasons, next_step = outcome_of(found, missed, unknown, missing, rule, places)
    caution = _caution(measured, winners, rule) if winners else None
    compared = tuple(found), tuple(missing), tuple(reasons)
    out = tuple(f"{miss.variant} is ruled out: {miss.said}." for several in missed.values() for miss in several)
    said = (verdict, winners, places[0].context, temperature, *compared, next_step, flags, caution)
    return Decision(setting, *said, tuple(whole), out, tuple(places))


def decide_all(
    pages: Sequence[Setting], rule: Rule, others: Mapping[str, int] = NO_OTHERS, doubts: Doubts = NO_DOUBTS
) -> list[Decision]:
    """One decision per setting that the question is about, or per mix of their batches.

    Raises ValueError if no setting is of the model, device, tp or batch that are asked about.
    """
    everywhere = sorted({v for page in pages for v in page.variants})
    about = rule.question.about(pages)
    wanted = rule.batch.sizes if rule.batch else distinct(p.values["batch"] for p in about)
    if rule.batch is None:
        return [decide([page], rule, everywhere, others, doubts) for page in about]
    chosen = [[p for p in family if p.values["batch"] in wanted] for family in families(about, ["batch"])]
    chosen = [family for family in chosen if len(family) == len(wanted)]
    if not chosen:
        batches = distinct(p.values["batch"] for p in about)
        raise ValueError(f"report.batch must be a batch that was run, one of {batches}; got {rule.batch}")
    return [decide(family, rule, everywhere, others, doubts) for family in chosen]


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
