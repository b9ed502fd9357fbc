"""Cache sizes as curves for figures: plain names and points, which a door hands to whoever draws.

A point is (x, value); a value of None stands for what cannot be: heads that cannot be split, not one sequence that
fits.
"""

from collections.abc import Mapping, Sequence

from experiments.planning import four
from experiments.planning.capacity import capacity
from experiments.planning.fits import OWN, Budget, variants
from experiments.planning.formats import Format
from experiments.planning.model_cache import ModelCache

Curves = dict[str, list[tuple[int, int | None]]]

SHORTEST, LONGEST = 64, 131_072  # tokens that a figure reaches over at least; below the least window in use
TPS = (1, 2, 4, 8, 16)
MOST = 16  # models that one figure can tell apart


def named(models: Mapping[str, ModelCache]) -> dict[str, ModelCache]:
    """What to draw: several models by name, or one with what other attention would make of it.

    Raises ValueError if there are more than a figure can tell apart.
    """
    if len(models) > MOST:
        raise ValueError(
            f"plots can tell at most {MOST} models apart; got {len(models)}: name some of them in config=[]"
        )
    if len(models) > 1:
        return dict(models)
    ((label, model),) = models.items()
    return {label if name == OWN else name: made for name, made in variants(model)[0].items()}


def contexts(tokens: Sequence[int], shortest: int = SHORTEST) -> list[int]:
    """Powers of two over the whole reach, and what was asked for."""
    most = max(LONGEST, *tokens)
    powers = {1 << n for n in range(shortest.bit_length() - 1, most.bit_length())}
    return sorted(powers | set(tokens))


def over_context(
    models: Mapping[str, ModelCache], kv: Format, tokens: Sequence[int]
) -> dict[str, list[tuple[int, int]]]:
    """Bytes of one sequence, whole model, windows capped, constant state included."""
    return {
        name: [(t, four.exact(model, kv, t) + four.state_bytes(model)) for t in contexts(tokens)]
        for name, model in models.items()
    }


def over_tp(models: Mapping[str, ModelCache], kv: Format, tokens: int, tps: Sequence[int]) -> Curves:
    """One rank's bytes of one sequence of ``tokens``, state included; None where the query heads cannot be split."""

    def size(model: ModelCache, tp: int) -> int | None:
        try:
            rank = four.per_device(model, kv, tokens, tp)
        except ValueError:
            return None
        return rank.bytes + rank.state_bytes

    every = sorted({*TPS, *tps})
    return {name: [(tp, size(model, tp)) for tp in every] for name, model in models.items()}


def sequences_over_context(
    models: Mapping[str, ModelCache], kv: Format, tokens: Sequence[int], tp: int, budgets: Mapping[str, Budget]
) -> Curves:
    """Sequences that fit at each length; None where not one does, or where weights do not fit."""

    def count(name: str, length: int) -> int | None:
        try:
            devices = budgets[name].devices(tp)
            found = devices and capacity(models[name], kv, devices, budgets[name].weights, {length: 1})
        except ValueError:
            return None
        return (found and found.sequences) or None

    return {name: [(t, count(name, t)) for t in contexts(tokens, 1024)] for name in models}
