"""Figures of cache sizes: planning counts, telling draws, and neither knows the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.planning import curves, four
from experiments.planning.fits import Budget
from experiments.planning.formats import Format
from experiments.planning.model_cache import ModelCache
from experiments.telling.figures.sizes import Sheet, draw_cache, draw_capacity, draw_devices
from experiments.telling.words import number
from variants.contract.tokens import format_tokens

LOGICAL = "Logical bytes: windows capped, padding not counted, constant state included."
BENDS = "a window that is full costs no more: the curve bends"
STRAIGHT = "every token costs the same"
SAME_WEIGHTS = "The weights are taken to stay the same with other attention."


@dataclass(frozen=True)
class Shown:
    """What to draw, by name; of ``budgets`` there is one per model, or none. ``notes`` go below the figures."""

    models: Mapping[str, ModelCache]
    kv: Format
    tokens: Sequence[int]
    tps: Sequence[int]
    budgets: Mapping[str, Budget]
    subject: str = ""
    notes: tuple[str, ...] = ()


def draw_sizes(asked: Shown, folder: Path) -> list[Path]:
    """Save the figures as PNG and SVG and return the PNGs; ValueError if there is nothing that can be drawn.

    One model is shown beside what other attention would make of it; of several each is a curve.
    """
    asked = shortened(asked)
    models, notes = _storable(curves.named(asked.models), asked.kv)
    if not models:
        raise ValueError(f"plots need a model that can be cached in {asked.kv.name}; got none")
    budgets = {name: _of(asked.budgets, name) for name in models} if asked.budgets else {}
    subject = f"{next(iter(asked.models))}, " if len(asked.models) == 1 else ""
    shown = replace(asked, models=models, budgets=budgets, subject=subject, notes=notes)
    drawn = [draw_cache(_over_context(shown), folder), draw_devices(_over_tp(shown), folder)]
    if budgets and all(budget.memory for budget in budgets.values()):
        drawn.append(draw_capacity(_capacity(shown), folder))
    return [folder / f"{figure.stem}.png" for figure in drawn]


def shortened(asked: Shown) -> Shown:
    """Labels that are paths as people call the model, unless two of them would be called the same."""
    short = {label: _called(label) for label in asked.models}
    if len(set(short.values())) < len(short):
        return asked
    models = {short[label]: model for label, model in asked.models.items()}
    return replace(asked, models=models, budgets={short[label]: budget for label, budget in asked.budgets.items()})


def _called(label: str) -> str:
    path = Path(label)
    if path.name == "config.json":
        return path.parent.name or label
    return path.name.removesuffix(".json")


def _of(budgets: Mapping[str, Budget], name: str) -> Budget:
    """A model's own, or the only one where the curves are variants of one model."""
    return budgets[name] if len(budgets) > 1 else next(iter(budgets.values()))


def _storable(models: Mapping[str, ModelCache], kv: Format) -> tuple[dict[str, ModelCache], tuple[str, ...]]:
    found, notes = {}, []
    for name, model in models.items():
        try:
            four.check_format(model, kv)
            found[name] = model
        except ValueError as error:
            notes.append(f"Left out: {name}: {error}.")
    return found, tuple(notes)


def _bends(model: ModelCache, kv: Format) -> bool:
    """Whether a window fills on the way, so that later tokens cost less."""
    return four.marginal(model, kv, 0) != four.marginal(model, kv, None)


def _over_context(shown: Shown) -> Sheet:
    return Sheet(
        stem="cache-context",
        heading="Cache per sequence over context",
        title=f"{shown.subject}{shown.kv.name} cache, all layers, one sequence",
        panel=BENDS if any(_bends(model, shown.kv) for model in shown.models.values()) else STRAIGHT,
        label="bytes per sequence",
        points=curves.over_context(shown.models, shown.kv, shown.tokens),
        gaps="nothing is cached",
        notes=(LOGICAL, *shown.notes),
    )


def _over_tp(shown: Shown) -> Sheet:
    tokens = shown.tokens[0]
    return Sheet(
        stem="device-tp",
        heading="Cache on each device over tensor parallelism",
        title=f"{shown.subject}{shown.kv.name} cache, {format_tokens(tokens)} tokens, one sequence, one rank",
        panel="heads are split, a latent is whole on every rank",
        label="bytes per sequence and device",
        points=curves.over_tp(shown.models, shown.kv, tokens, shown.tps),
        gaps="tp does not divide the query heads",
        notes=(LOGICAL, *shown.notes),
    )


def _capacity(shown: Shown) -> Sheet:
    tp, budgets = shown.tps[-1], list(shown.budgets.values())
    one = budgets[0]
    assert one.memory is not None, "who draws what fits has checked that memory is known"
    weights = {budget.weights for budget in budgets}
    heavy = _gb(weights.pop()) + " of weights" if len(weights) == 1 else "weights as given for each"
    count = f"{one.count} device{'s' if one.count > 1 else ''} of {_gb(one.memory)}"
    return Sheet(
        stem="capacity-context",
        heading="Sequences that fit over context",
        title=f"{shown.subject}{count}, {_gb(one.reserve)} of each reserved, tp {tp}, {heavy}, {shown.kv.name} cache",
        panel="all sequences at this length",
        label="sequences on all devices",
        points=curves.sequences_over_context(shown.models, shown.kv, shown.tokens, tp, shown.budgets),
        gaps="not one sequence fits, or the weights do not",
        notes=(LOGICAL, *([SAME_WEIGHTS] if shown.subject else []), *shown.notes),
    )


def _gb(count: int) -> str:
    return f"{number(count / 10**9, 4).rstrip('0').rstrip('.') if count else 0} GB"
