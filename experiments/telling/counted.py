"""What the planner counts for the variants of a report: one rank's cache at any tp and context, to the byte."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.telling.frame import family_order, records
from experiments.telling.scene import Scene
from experiments.telling.setting import Setting

Streams = Sequence[tuple[int, int | None]]  # bytes of an entry, window


@dataclass(frozen=True)
class Counted:
    """A variant's streams on one rank, by tp; None where its heads cannot be split among so many."""

    label: str
    layers: int
    ranks: Mapping[int, Streams | None]

    def bytes(self, tp: int, context: int) -> int | None:
        """Of one sequence, all layers, one rank."""
        streams = self.ranks.get(tp)
        if streams is None:
            return None
        return self.layers * sum(size * min(context, window or context) for size, window in streams)


@dataclass(frozen=True)
class Shelf:
    """The variants of one model and cache dtype that are counted, and the labels of those that are not."""

    model: str
    kv_dtype: str
    layers: int
    contexts: tuple[int, ...]
    variants: tuple[Counted, ...]
    left_out: tuple[str, ...]

    @property
    def name(self) -> str:
        """What is counted."""
        return f"{self.model}, {self.kv_dtype} cache"

    @property
    def notes(self) -> list[str]:
        """Who is missing, and why."""
        if not self.left_out:
            return []
        return [f"Not counted: {', '.join(self.left_out)}; their rows hold another cache than conf/attention says."]


def shelf(pages: Sequence[Setting], scene: Scene) -> Shelf | None:
    """What can be counted of settings of one model and cache dtype; None where nothing can.

    A variant counts if the planner gives the bytes that its rows have: an override may have made another of it.
    """
    model, kv_dtype = pages[0].values["model"], pages[0].values["kv_dtype"]
    known = scene.known("models", model)
    if known is None or scene.plan is None or kv_dtype not in scene.plan["kv_dtypes"]:
        return None
    found: dict[str, Counted] = {}
    for page in pages:
        for label in page.variants:
            one = _counted(label, known, kv_dtype)
            if label not in found and one is not None and _agrees(one, page):
                found[label] = one
    labels = sorted({label for page in pages for label in page.variants}, key=family_order)
    contexts = sorted({context for page in pages for context in page.contexts() if context > 0})
    if not found or not contexts:
        return None
    counted = tuple(found[label] for label in labels if label in found)
    left_out = tuple(label for label in labels if label not in found)
    return Shelf(model, kv_dtype, known["layers"], tuple(contexts), counted, left_out)


def _counted(label: str, model: Mapping[str, Any], kv_dtype: str) -> Counted | None:
    variant = next((it for it in model["variants"] if it["name"] == label.split(" (")[0]), None)
    if variant is None:
        return None
    return Counted(label, model["layers"], {int(tp): _streams(rank, kv_dtype) for tp, rank in variant["ranks"].items()})


def _streams(rank: Mapping[str, Any], kv_dtype: str) -> Streams | None:
    streams = {} if "reason" in rank else rank["streams"][kv_dtype]
    return streams.get("kept")


def _agrees(one: Counted, page: Setting) -> bool:
    rows = page.rows[(page.rows["label"] == one.label) & page.rows["bytes_per_sequence"].notna()]
    seen = records(rows[["context", "bytes_per_sequence"]].drop_duplicates())
    said = [(one.bytes(page.values["tp"] or 1, row["context"]), row["bytes_per_sequence"]) for row in seen]
    return bool(said) and all(planned == one.layers * size for planned, size in said)
