"""A variant in the whole model: layers times one layer's rows, the model's other weights, what the device must hold.

Rows are of one attention layer and one rank. What is not in them, reading the other weights, is computed and said so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.telling.candidates import Candidate, latest, scope_rows
from experiments.telling.needs import Needs
from experiments.telling.setting import Setting
from experiments.telling.tables import Row, Table
from experiments.telling.words import NOTHING, binary_size, count, number, times
from variants.contract.dtype import Dtype

HEADER = (
    *("variant", "cache, one device", "sequences that fit", "attention layers, ms", "other weights, ms"),
    *("ms per token", "tokens/s per device", "prefill, ms", "rows"),
)


@dataclass(frozen=True)
class Whole:
    """Of one device, whole batch: bytes of all layers' caches, milliseconds of a token, of all its attention layers.

    ``low_ms``: by the interval's lower end, where there is one. ``other_ms`` is predicted or given, None if unknown.
    ``first_ms``: all layers' prefill, the attention layers' share of the time to the first token, None if not run.
    """

    variant: str
    bytes: int | None
    layers_ms: float
    low_ms: float
    other_ms: float | None
    first_ms: float | None
    batch: int
    ranks: int
    keys: tuple[str, ...]

    @property
    def ms(self) -> float:
        """Of a token; where the other weights are unknown only of the attention layers."""
        return self.layers_ms + (self.other_ms or 0.0)


@dataclass(frozen=True)
class Miss:
    """A need that a variant does not meet: what it takes and what there is, and how many times that would do."""

    variant: str
    said: str
    factor: float


def wholes(
    setting: Setting,
    found: Sequence[Candidate],
    at: tuple[int | None, str | None],
    needs: Needs,
    others: Mapping[str, int],
) -> list[Whole]:
    """Every candidate's ``step`` in the whole model, ``at`` a context and temperature; none without a batch or layers.

    ``others``: weights outside of the attention layers by model, of all ranks together; every cp rank has them whole.
    """
    layers, batch = setting.values["layers"], setting.values["batch"]
    if not layers or not batch:
        return []
    prefill = {row["label"]: row for row in latest(scope_rows(setting, "prefill"), *at)}
    steps = {row["label"]: row for row in latest(scope_rows(setting, "step"), *at)}
    tp, cp = setting.values["tp"] or 1, setting.values["cp"] or 1
    made = []
    for one in found:
        step, first = steps.get(one.variant), prefill.get(one.variant)
        if step is None:
            continue
        per = layers / 1e3
        made.append(
            Whole(
                one.variant,
                None if step["allocated_bytes"] is None else layers * step["allocated_bytes"],
                per * step["latency_us_p50"],
                per * (step["latency_us_ci_low"] or step["latency_us_p50"]),
                _other_ms(step, needs, others, tp),
                per * first["latency_us_p50"] if first else None,
                batch,
                tp * cp,
                (step["key"], *((first["key"],) if first else ())),
            )
        )
    return made


def misses(whole: Whole, needs: Needs) -> list[Miss]:
    """What rules a variant out: a time only beyond noise, and by the attention layers alone if no more is known."""
    found = []
    if needs.memory is not None and whole.bytes is not None and whole.bytes > needs.memory:
        said = f"its caches take {binary_size(whole.bytes)} of a device that has {binary_size(needs.memory)} for them"
        found.append(Miss(whole.variant, said, whole.bytes / needs.memory))
    if needs.ms_per_token is not None and whole.low_ms + (whole.other_ms or 0.0) > needs.ms_per_token:
        said = f"a token takes {number(whole.ms)} ms where {number(needs.ms_per_token)} ms are asked for"
        found.append(Miss(whole.variant, said, whole.ms / needs.ms_per_token))
    first = whole.first_ms
    if needs.ms_to_first_token is not None and first is not None and first > needs.ms_to_first_token:
        said = f"prefill takes {number(first)} ms where {number(needs.ms_to_first_token)} ms are asked for"
        found.append(Miss(whole.variant, said, first / needs.ms_to_first_token))
    return found


def closest(missed: Sequence[Sequence[Miss]]) -> str:
    """Of the variants that all miss something, the one whose worst miss is least, and by how much to relax what."""
    least = min(missed, key=lambda misses: max(miss.factor for miss in misses))
    what = " and ".join(f"{miss.said} ({times(miss.factor)})" for miss in least)
    return f"{least[0].variant} comes closest: {what}."


def whole_table(found: Sequence[Whole], needs: Needs) -> Table:
    """A line per variant, for the device and the batch of the setting."""
    return Table(HEADER, tuple(_line(whole, needs) for whole in found))


def _line(whole: Whole, needs: Needs) -> tuple[str, ...]:
    fits = NOTHING
    if needs.memory is not None and whole.bytes:
        fits = count(needs.memory * whole.batch // whole.bytes)
    return (
        whole.variant,
        NOTHING if whole.bytes is None else binary_size(whole.bytes),
        fits,
        number(whole.layers_ms),
        NOTHING if whole.other_ms is None else number(whole.other_ms),
        NOTHING if whole.other_ms is None else number(whole.ms),
        NOTHING if whole.other_ms is None else number(1e3 * whole.batch / whole.ms / whole.ranks),
        NOTHING if whole.first_ms is None else number(whole.first_ms),
        ", ".join(whole.keys),
    )


def _other_ms(step: Row, needs: Needs, others: Mapping[str, int], tp: int) -> float | None:
    if needs.other_ms is not None:
        return needs.other_ms
    elements, read = others.get(step["model"]), step["read_ceiling_gbps"]
    return None if elements is None or not read else Dtype(step["dtype"]).bytes(elements) / tp / read / 1e6
