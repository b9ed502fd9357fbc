"""What follows from an outcome: gains, prices and what was not looked at. Ratios stay inside one setting."""

from experiments.telling.candidates import Candidate
from experiments.telling.decision import Decision, below_roof
from experiments.telling.outcome import ties
from experiments.telling.rule import Rule
from experiments.telling.words import count, exact_bytes, size, speed
from variants.contract.tokens import format_tokens

QUALITY = (
    "quality is not measured in these rows: a variant that is faster and caches fewer bytes can answer worse. "
    "This record decides cost only."
)


def consequences(decision: Decision, rule: Rule) -> list[str]:
    """``Good/Bad/Neutral, because ...`` sentences, each naming its rows."""
    by_name = {c.variant: c for c in decision.candidates}
    said: list[str] = []
    for name in decision.winners:
        winner, baseline = by_name[name], by_name.get(rule.baseline)
        if baseline and baseline is not winner:
            said += [_time(winner, baseline, rule), _bytes(winner, baseline)]
        said += _given_up(winner, decision)
        said += _whole_model(winner, decision)
        said += _conversion(winner, rule)
    said += [*_replicated(decision), *_between_ranks(decision)]
    return [*said, *(_kernel_limited(by_name[name], decision, rule) for name in decision.kernel_limited)]


def _time(winner: Candidate, baseline: Candidate, rule: Rule) -> str:
    why = ties(winner, baseline, rule)
    word = "Neutral" if why else "Good" if winner.us < baseline.us else "Bad"
    noise = f", which is noise: {why}" if why else ""
    ratio = speed(winner.variant, winner.us, baseline.variant, baseline.us)
    return f"{word}, because {ratio} per layer and {rule.scope}{noise} ({_rows(winner, baseline)})."


def _bytes(winner: Candidate, baseline: Candidate) -> str:
    if not winner.bytes or not baseline.bytes:
        return f"Neutral, because the bytes of {winner.variant} or {baseline.variant} are not recorded."
    ratio = winner.bytes / baseline.bytes
    word = "Good" if ratio < 1 else "Bad" if ratio > 1 else "Neutral"
    said = size(winner.variant, winner.bytes, baseline.variant, baseline.bytes)
    return f"{word}, because {said} ({_rows(winner, baseline)})."


def _given_up(winner: Candidate, decision: Decision) -> list[str]:
    """Variants that would have cached less, or that have the lower median, and were not chosen."""
    ruled_out = {out.split(" ")[0] for out in decision.ruled_out}
    others = [c for c in decision.candidates if c.variant not in decision.winners and c.variant not in ruled_out]
    smaller = [c for c in others if c.bytes and winner.bytes and c.bytes < winner.bytes]
    faster = [c for c in others if c.us < winner.us]
    return [
        f"Bad, because {size(c.variant, c.bytes or 0, winner.variant, winner.bytes or 0)}, and its time rules it out: "
        f"{speed(c.variant, c.us, winner.variant, winner.us)} ({_rows(c, winner)})."
        for c in smaller
    ] + [
        f"Neutral, because the median of {speed(c.variant, c.us, winner.variant, winner.us)}, within noise "
        f"({_rows(c, winner)})."
        for c in faster
    ]


def _whole_model(winner: Candidate, decision: Decision) -> list[str]:
    layers, batch = decision.setting.values["layers"], decision.setting.values["batch"]
    if not layers or not winner.bytes or decision.context is None or len(decision.places) > 1:
        return []
    total = exact_bytes(layers * winner.bytes / batch)
    context, tp = format_tokens(decision.context), decision.setting.values["tp"] or 1
    rank = f", on each of {tp} ranks" if tp > 1 else ""
    return [
        f"Neutral, because {winner.variant} caches {total} for a sequence of {context} tokens over {layers} "
        f"layers{rank}."
    ]


def _conversion(winner: Candidate, rule: Rule) -> list[str]:
    """What changing the attention of a trained model takes beside time and bytes."""
    own = rule.question.own
    if own is None:
        return []
    if winner.variant == own:
        return [f"Good, because {own} is what the model has: no weights are converted, none are trained again."]
    return [
        f"Bad, because the model has {own}: its weights must be converted to {winner.variant} and trained on, which no "
        "row here prices, and what that costs in quality is known from papers about other models alone."
    ]


def _replicated(decision: Decision) -> list[str]:
    """Variants whose cache tensor parallelism does not split as often as there are ranks."""
    rows = {row["key"]: row for row in decision.setting.records}
    mine = [(c, rows[c.key]) for c in decision.candidates if c.key in rows]
    tp = decision.setting.values["tp"]
    return [
        f"Bad, because at tp {tp} what {c.variant} caches is replicated: every rank keeps "
        f"{count(row['bytes_per_token'])} B per token and layer, and more ranks give no more room; data-parallel "
        f"attention, each group of ranks serving its own sequences, is the way out ({c.row})."
        for c, row in mine
        if row["tp_mode"] == "replicated" and row["bytes_per_token"] is not None
    ]


def _between_ranks(decision: Decision) -> list[str]:
    tp = decision.setting.values["tp"] or 1
    if tp == 1:
        return []
    return [
        f"Neutral, because what {tp} ranks say to each other (two all-reduces per layer) is in no row: it adds the "
        "same to every variant, and to every time per token above."
    ]


def _kernel_limited(candidate: Candidate, decision: Decision, rule: Rule) -> str:
    rows = "rows " + ", ".join(share.key for share in below_roof(candidate, rule))
    held = f"{candidate.variant} is held back by its kernel ({rows})"
    if candidate.variant in decision.winners:
        return f"Neutral, because {held}: a better one would only help it."
    return f"Bad, because {held}: a better one may reverse this outcome."


def _rows(*candidates: Candidate) -> str:
    return "rows " + ", ".join(c.key for c in candidates)
