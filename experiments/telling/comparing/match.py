"""Which row of one side is which row of the other."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from experiments.record import Measurement
from experiments.telling.comparing.side import Entry, Side
from experiments.telling.frame import SETTING, VARIANT

# What a point is, apart from the machine, its threads, the seed and how the clock was read.
MACHINE = ("origin", "device", "host", "threads", "versions", "seed")
POINT = (*VARIANT, *(name for name in SETTING if name not in MACHINE), "context", "scope", "temperature")
ACROSS = {
    "attention": ("attention", "kind", "form", "num_kv_heads", "d_qk", "d_v", "scale", "window", "tp_mode"),
    "storage": ("storage", "order", "page_size"),
    "backend": ("backend",),
    "dtype": ("dtype", "kv_dtype"),
    "tp": ("tp", "tp_mode", "num_q_heads", "num_kv_heads"),
    "cp": ("cp",),
    "temperature": ("temperature",),
}


@dataclass(frozen=True)
class Matched:
    """Pairs (a, b) of one point, what only one side has, and how many different points there are in all."""

    pairs: tuple[tuple[Entry, Entry], ...]
    only_a: tuple[Entry, ...]
    only_b: tuple[Entry, ...]

    def count(self, origin: str) -> int:
        """Points on either side that are measured, or predicted."""
        ours = [pair[0] for pair in self.pairs]
        return sum(entry.row.origin == origin for entry in (*ours, *self.only_a, *self.only_b))


def match(a: Side, b: Side, by: str = "key", across: Iterable[str] = ()) -> Matched:
    """Pair rows of equal ``key``, or (``by="point"``) of equal columns whatever their machine, seed and clock.

    ``across`` names groups of columns in which the sides may differ; it implies ``by="point"``. Rows of one machine are
    paired first; across machines a point is paired only where each side has one row of it. Raises ValueError where
    ``by="point"`` finds two different keys of one side for one point.
    """
    free = [column for group in across for column in ACROSS[group]]
    columns = None if by == "key" and not free else tuple(c for c in POINT if c not in free)
    sides = [_by_identity(side, columns) for side in (a, b)]
    pairs: list[tuple[Entry, Entry]] = []
    for identity in sides[0]:
        pairs += _pairs(sides[0][identity], sides[1].get(identity, []))
    paired = [{id(pair[side]) for pair in pairs} for side in (0, 1)]
    alone = [tuple(e for e in side.entries if id(e) not in seen) for side, seen in zip((a, b), paired, strict=True)]
    return Matched(tuple(pairs), *alone)


def same_columns(row: Measurement, columns: Iterable[str]) -> tuple[Hashable, ...]:
    """The values of some columns, null included."""
    return tuple(getattr(row, column) for column in columns)


def _by_identity(side: Side, columns: tuple[str, ...] | None) -> dict[Hashable, list[Entry]]:
    found: dict[Hashable, list[Entry]] = {}
    for entry in side.entries:
        here = entry.row.key if columns is None else same_columns(entry.row, columns)
        others = found.setdefault((entry.row.origin, here), [])
        twin = next((e for e in others if e.machine == entry.machine), None)
        if twin is not None:
            raise ValueError(
                f"{side.name} must hold one row per point; {side.place} has two of {entry.row.attention} "
                f"{entry.row.scope} at context {entry.row.context} (keys {twin.row.key}, {entry.row.key}): "
                f"name one series with {side.name}=..., or use match=key"
            )
        others.append(entry)
    return found


def _pairs(ours: list[Entry], theirs: list[Entry]) -> list[tuple[Entry, Entry]]:
    same = [(x, y) for x in ours for y in theirs if x.machine == y.machine]
    left = [x for x in ours if x not in [pair[0] for pair in same]]
    right = [y for y in theirs if y not in [pair[1] for pair in same]]
    return [*same, (left[0], right[0])] if len(left) == len(right) == 1 else same
