"""Public latencies that others measured: the fastest engine of each point, one device and layout at a time."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.planning.columns import SHAPE, pieces
from experiments.planning.load import NAMED, Floats, Load, Shapes, load_of


@dataclass(frozen=True)
class Latencies:
    """Points of one layout on one device: what they ask for, the least time any engine took, and their fold.

    ``fold`` is equal for points with equal (q_heads, kv_heads).
    """

    layout: str
    load: Load
    us: Floats
    fold: NDArray[np.str_]

    def __getitem__(self, chosen: NDArray[np.bool_]) -> "Latencies":
        """The points where ``chosen`` is true."""
        return Latencies(self.layout, self.load[chosen], self.us[chosen], self.fold[chosen])


def read_oracle(path: Path, gpu: str) -> Mapping[str, Latencies]:
    """The points of ``gpu`` by layout, best engine per point; ValueError if the table has none of it."""
    best: dict[tuple[str, ...], float] = {}
    seen: set[str] = set()
    for piece in pieces(path, ("gpu", *SHAPE, "latency_us")):
        piece.shapes()  # every cell is checked, also of other devices
        points = zip(*(piece.column(name) for name in SHAPE), strict=True)
        for name, point, us in zip(piece.column("gpu"), points, piece.positive("latency_us"), strict=True):
            seen.add(name)
            if name == gpu:
                best[point] = min(float(us), best.get(point, np.inf))
    if not best:
        raise ValueError(f"{path}: column gpu must hold {gpu}; got {', '.join(sorted(seen))}")
    return {name: _latencies(name, rows) for name in NAMED if (rows := {p: t for p, t in best.items() if p[0] == name})}


def _latencies(layout: str, best: Mapping[tuple[str, ...], float]) -> Latencies:
    points = sorted(best, key=lambda p: (p[0], *map(int, p[1:])))
    names, *numbers = (np.array(column) for column in zip(*points, strict=True))
    shapes = Shapes(names, *(column.astype(np.float64) for column in numbers))
    fold = np.array([f"{q}:{kv}" for _, q, kv, _, _ in points])
    return Latencies(layout, load_of(layout, shapes), np.array([best[p] for p in points]), fold)
