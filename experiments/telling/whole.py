"""A variant in the whole model: layers times one layer's rows, the model's other weights, what the device must hold.

Rows are of one attention layer and one rank. What is not in them, reading the other weights for a token and multiplying
a prompt by them, is computed and said so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.telling.candidates import Candidate, Rows, latest, point_rows
from experiments.telling.needs import Needs
from experiments.telling.places import Place, spot
from experiments.telling.tables import Row, Table
from experiments.telling.words import NOTHING, binary_size, count, number
from variants.contract.dtype import Dtype

HEADER = (
    *("variant", "at", "cache, one device", "room for caches", "sequences that fit", "attention layers, ms"),
    *("other weights, ms", "ms per token", "tokens/s per device", "ms to first token", "rows"),
)


@dataclass(frozen=True)
class Whole:
    """Of one device, whole batch: bytes of all layers' caches, milliseconds of a token, of all its attention layers.

    ``at`` tells its place from others of a mix. ``room``: bytes that this variant's weights leave for caches, None if
    nobody said. ``low_ms``: by the interval's lower end, or by a prediction's error, where there is one. ``other_ms``
    is predicted or given, None if unknown. ``prefill_ms``: all layers' prefill of one prompt, None if there is no such
    row; ``prompt_ms``: what the other weights take of a prompt, predicted, None if unknown.
    """

    variant: str
    at: str
    bytes: int | None
    room: int | None
    layers_ms: float
    low_ms: float
    other_ms: float | None
    prefill_ms: float | None
    prompt_ms: float | None
    batch: int
    ranks: int
    keys: tuple[str, ...]

    @property
    def ms(self) -> float:
        """Of a token; where the other weights are unknown only of the attention layers."""
        return self.layers_ms + (self.other_ms or 0.0)

    @property
    def first_ms(self) -> float | None:
        """Until the first token of one prompt, nothing else being served; None if any part of it is unknown."""
        return None if self.prefill_ms is None or self.prompt_ms is None else self.prefill_ms + self.prompt_ms

    @property
    def fits(self) -> int | None:
        """Sequences of this length that one device has room for."""
        return None if self.room is None or not self.bytes else max(0, self.room) * self.batch // self.bytes


def wholes(
    places: Sequence[Place],
    found: Sequence[Candidate],
    temperature: str | None,
    needs: Needs,
    others: Mapping[str, int],
    own: str | None = None,
) -> list[Whole]:
    """Every candidate's ``step`` in the whole model at every place; none without a batch or layers.

    ``others``: weights outside of the attention layers by model, of all ranks together; every cp rank has them whole.
    ``own``: the variant for whose weights the memory after weights was given; null: for each one's own.
    """
    made = []
    for place in places:
        steps = latest(point_rows(place.setting, "step", place.context), temperature)
        prefills = latest(point_rows(place.setting, "prefill", place.context), temperature)
        by = {row["label"]: row for row in steps}
        prefill = {row["label"]: row for row in prefills}
        theirs = _weights(steps, own)
        made += [
            in_model(
                by[one.variant], prefill.get(one.variant), place, needs, others, theirs, one.doubt, spot(places, place)
            )
            for one in found
            if one.variant in by and place.setting.values["layers"] and place.setting.values["batch"]
        ]
    return made


def in_model(
    step: Row,
    first: Row | None,
    place: Place,
    needs: Needs,
    others: Mapping[str, int],
    own_weights: int | None,
    doubt: float | None = None,
    at: str = "",
    ranks: int | None = None,
) -> Whole:
    """One variant at one place.

    ``doubt``: how far its prediction is off at most. ``ranks``: over which the other weights lie, if not over ``tp``.
    """
    values = place.setting.values
    layers, batch = values["layers"], values["batch"]
    tp, cp, per = ranks or values["tp"] or 1, values["cp"] or 1, layers / 1e3
    elements = others.get(step["model"])
    return Whole(
        step["label"],
        at,
        None if step["allocated_bytes"] is None else layers * step["allocated_bytes"],
        _room(step, needs, layers, own_weights),
        per * step["latency_us_p50"],
        per * (step["latency_us_ci_low"] or step["latency_us_p50"] / (1 + (doubt or 0.0))),
        _other_ms(step, needs, elements, tp),
        per * first["latency_us_p50"] / batch if first else None,
        _prompt_ms(first, elements, tp) if first else None,
        batch,
        tp * cp,
        (step["key"], *((first["key"],) if first else ())),
    )


def whole_table(found: Sequence[Whole]) -> Table:
    """A line per variant and place, for the device; without what no line has."""
    lines = [_line(whole) for whole in found]
    kept = [n for n, name in enumerate(HEADER) if name != "at" or any(line[n] for line in lines)]
    return Table(tuple(HEADER[n] for n in kept), tuple(tuple(line[n] for n in kept) for line in lines))


def _line(whole: Whole) -> tuple[str, ...]:
    known = whole.other_ms is not None
    return (
        whole.variant,
        whole.at,
        NOTHING if whole.bytes is None else binary_size(whole.bytes),
        NOTHING if whole.room is None else binary_size(max(0, whole.room)),
        NOTHING if whole.fits is None else count(whole.fits),
        number(whole.layers_ms),
        number(whole.other_ms),
        number(whole.ms) if known else NOTHING,
        number(1e3 * whole.batch / whole.ms / whole.ranks) if known else NOTHING,
        number(whole.first_ms),
        ", ".join(whole.keys),
    )


def _weights(steps: Rows, own: str | None) -> int | None:
    """Bytes of a layer's weights of the variant that the model has."""
    found = [row["weight_bytes"] for row in steps if own in (row["label"], row["attention"])]
    return found[0] if len(found) == 1 else None


def _room(step: Row, needs: Needs, layers: int, own_weights: int | None) -> int | None:
    """Memory after weights, less what this variant's weights take beyond those it was given for."""
    if needs.memory is None:
        return None
    more = 0 if own_weights is None or step["weight_bytes"] is None else step["weight_bytes"] - own_weights
    return needs.memory - layers * more


def _other_ms(step: Row, needs: Needs, elements: int | None, tp: int) -> float | None:
    if needs.other_ms is not None:
        return needs.other_ms
    read = step["read_ceiling_gbps"]
    return None if elements is None or not read else Dtype(step["dtype"]).bytes(elements) / tp / read / 1e6


def _prompt_ms(first: Row, elements: int | None, tp: int) -> float | None:
    """Two FLOPs per other weight and prompt token, at the matmul ceiling."""
    rate = first["matmul_ceiling_tflops"]
    return None if elements is None or not rate else 2 * elements * first["context"] / tp / rate / 1e9
