"""Which needs a variant does not meet, by how much, and which cannot be told for want of a row."""

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.telling.needs import Needs
from experiments.telling.whole import Whole
from experiments.telling.words import binary_size, count, number, times


@dataclass(frozen=True)
class Miss:
    """A need that a variant does not meet: what it takes and what there is, and how many times that would do."""

    variant: str
    need: str
    said: str
    factor: float


def misses(wholes: Sequence[Whole], needs: Needs) -> list[Miss]:
    """What rules a variant out: of every need the place that misses it most; a time only beyond noise."""
    worst: dict[str, Miss] = {}
    for whole in wholes:
        for miss in _misses(whole, needs):
            if miss.need not in worst or miss.factor > worst[miss.need].factor:
                worst[miss.need] = miss
    return list(worst.values())


def untold(wholes: Sequence[Whole], needs: Needs) -> list[str]:
    """What is asked for and cannot be held against rows, each said once."""
    said: dict[str, None] = {}
    for whole in wholes:
        if needs.memory is not None and whole.bytes is None:
            said["its rows do not say what its caches allocate"] = None
        if needs.ms_per_token is not None and whole.other_ms is None:
            said["what a token takes beside the attention layers is unknown (report.needs.other_ms gives it)"] = None
        if needs.ms_to_first_token is not None and whole.first_ms is None:
            what = "it has no prefill row" if whole.prefill_ms is None else "what a prompt takes of other weights is"
            unknown = "" if whole.prefill_ms is None else " unknown"
            said[f"time to first token is not known: {what}{unknown}{f' at {whole.at}' if whole.at else ''}"] = None
    return list(said)


def closest(missed: Sequence[Sequence[Miss]]) -> str:
    """Of the variants that all miss something, the one whose worst miss is least, and by how much to relax what."""
    least = min(missed, key=lambda misses: max(miss.factor for miss in misses))
    what = " and ".join(f"{miss.said} ({times(miss.factor)})" for miss in least)
    return f"{least[0].variant} comes closest: {what}."


def _misses(whole: Whole, needs: Needs) -> list[Miss]:
    at = f"at {whole.at} " if whole.at else ""
    found = []
    if whole.room is not None and whole.bytes is not None and whole.bytes > whole.room:
        room = max(0, whole.room)
        said = (
            f"{at}its caches take {binary_size(whole.bytes)} of a device that has {binary_size(room)} for them, "
            f"enough for {count(whole.fits)} of {count(whole.batch)} sequences"
        )
        found.append(Miss(whole.variant, "memory", said, whole.bytes / max(1, room)))
    known = whole.low_ms + (whole.other_ms or 0.0)
    if needs.ms_per_token is not None and known > needs.ms_per_token:
        said = f"{at}a token takes {number(whole.ms)} ms where {number(needs.ms_per_token)} ms are asked for"
        found.append(Miss(whole.variant, "token", said, whole.ms / needs.ms_per_token))
    first = (whole.prefill_ms or 0.0) + (whole.prompt_ms or 0.0)
    if needs.ms_to_first_token is not None and first > needs.ms_to_first_token:
        said = f"{at}the first token takes {number(first)} ms where {number(needs.ms_to_first_token)} ms are asked for"
        found.append(Miss(whole.variant, "first", said, first / needs.ms_to_first_token))
    return found
