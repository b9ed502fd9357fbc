"""Rows of a capacity table: one per variant, lengths, tp and cache dtype, and how a terminal shows them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from experiments.planning import four
from experiments.planning.amounts import format_mix
from experiments.planning.capacity import (
    Devices,
    alternatives,
    batch_beyond_weights,
    capacity,
    longest_context,
)
from experiments.planning.formats import Format
from experiments.planning.model_cache import ModelCache
from experiments.planning.table import OK, REFUSED

OWN = "as it is"


@dataclass(frozen=True)
class Budget:
    """What the caches must share: ``count`` devices of ``memory`` bytes, of which ``reserve`` stay free, and weights.

    Without ``memory`` only caches and weights are compared. Raises ValueError if the reserve leaves nothing.
    """

    weights: int
    memory: int | None = None
    count: int = 1
    reserve: int = 0

    def __post_init__(self) -> None:
        if self.memory is not None:
            Devices(self.memory, self.count, 1, self.reserve)

    def devices(self, tp: int) -> Devices | None:
        """The devices in groups of ``tp``; ValueError if they make no whole groups."""
        return None if self.memory is None else Devices(self.memory, self.count, tp, self.reserve)


@dataclass(frozen=True)
class Load:
    """The points to answer for. ``contexts``: mixes of lengths, tokens to shares."""

    contexts: Sequence[dict[int, int]]
    tps: Sequence[int]
    formats: Sequence[Format]


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One answer. ``sequences`` and ``cached_tokens`` are of all devices together.

    ``longest_context``: of a single sequence on one group of tp devices. ``batch_beyond_weights``: the smallest batch
    whose caches, replicas on ranks included, weigh more than the weights.
    """

    file: str
    variant: str
    kind: str
    kv_dtype: str
    tokens: str
    tp: int
    tp_mode: str | None = None
    devices: int
    memory_bytes: int | None = None
    reserve_bytes: int
    weight_bytes: int
    device_bytes_per_sequence: int | float | None = None
    sequences: int | None = None
    times_own: float | None = None
    cached_tokens: int | None = None
    longest_context: int | None = None
    batch_beyond_weights: int | None = None
    status: str = OK
    reason: str | None = None


COLUMNS = tuple(f.name for f in fields(Fit))


def variants(model: ModelCache) -> tuple[dict[str, ModelCache], str | None]:
    """The model as it is and with other attention in its place; why there is none of the latter, if so."""
    try:
        return {OWN: model, **alternatives(model)}, None
    except ValueError as error:
        return {OWN: model}, str(error)


def fits(model: ModelCache, load: Load, budget: Budget) -> list[Fit]:
    """Every point of one model and its alternatives, whose weights are taken to stay the same."""
    made = variants(model)[0]
    points = [(kv, contexts, tp) for kv in load.formats for contexts in load.contexts for tp in load.tps]
    return [fit for point in points for fit in _compared(model, made, *point, budget)]


def _compared(
    model: ModelCache, made: dict[str, ModelCache], kv: Format, contexts: dict[int, int], tp: int, budget: Budget
) -> list[Fit]:
    """One point for all variants, each set against the model as it is, which comes first."""
    answers = {name: _answer(variant, kv, contexts, tp, budget) for name, variant in made.items()}
    own = answers[OWN].get("sequences")
    told: dict[str, Any] = {
        "file": model.name,
        "kv_dtype": kv.name,
        "tokens": format_mix(contexts),
        "tp": tp,
        "devices": budget.count,
        "memory_bytes": budget.memory,
        "reserve_bytes": budget.reserve,
        "weight_bytes": budget.weights,
    }
    return [
        Fit(
            **told,
            **answer,
            variant=name,
            kind=made[name].kind,
            times_own=answer["sequences"] / own if own and "sequences" in answer else None,
        )
        for name, answer in answers.items()
    ]


def _answer(model: ModelCache, kv: Format, contexts: dict[int, int], tp: int, budget: Budget) -> dict[str, Any]:
    try:
        four.check_format(model, kv)
        beyond = batch_beyond_weights(model, kv, budget.weights, contexts, tp)
        devices = budget.devices(tp)
        if devices is None:
            return {"batch_beyond_weights": beyond}
        found = capacity(model, kv, devices, budget.weights, contexts)
    except ValueError as error:
        return {"status": REFUSED, "reason": str(error)}
    each = found.bytes_per_sequence
    return {
        "tp_mode": found.tp_mode,
        "device_bytes_per_sequence": each.numerator if each.denominator == 1 else float(each),
        "sequences": found.sequences,
        "cached_tokens": found.tokens,
        "longest_context": longest_context(four.on_rank(model, tp), kv, devices.room(budget.weights)),
        "batch_beyond_weights": beyond,
    }


SHOWN = {
    "file": "file",
    "variant": "variant",
    "kv_dtype": "kv dtype",
    "tokens": "tokens",
    "tp": "tp",
    "device_bytes_per_sequence": "B/sequence, device",
    "sequences": "sequences",
    "times_own": "of own",
    "cached_tokens": "tokens cached",
    "longest_context": "longest context",
    "batch_beyond_weights": "cache > weights from batch",
}


def shown(found: Sequence[Fit]) -> tuple[list[str], list[list[str]], list[str]]:
    """Header and cells of a terminal's table, and the reasons of rows that are not ok; empty columns are left out."""
    ok = [fit for fit in found if fit.status == OK]
    names = [name for name in SHOWN if any(getattr(fit, name) is not None for fit in ok)]
    cells = [[_cell(name, getattr(fit, name)) for name in names] for fit in ok]
    return [SHOWN[name] for name in names], cells, _reasons(found)


def _reasons(found: Sequence[Fit]) -> list[str]:
    """A line for each reason, with the variants that share it."""
    shared: dict[tuple[str, int, str], list[str]] = {}
    for fit in found:
        if fit.reason:
            names = shared.setdefault((fit.file, fit.tp, fit.reason), [])
            names += [fit.variant] if fit.variant not in names else []
    return [f"{file} {', '.join(names)}, tp {tp}: {reason}" for (file, tp, reason), names in shared.items()]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "any" if name == "longest_context" else "n/a"
    if name == "times_own":
        return f"{value:.2f}"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
