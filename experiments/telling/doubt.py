"""How far predicted times are off: what ``conf/device`` says of points that no fit had seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

FIELDS = ("points", "median", "p90", "rows", "source")


@dataclass(frozen=True)
class Doubt:
    """Relative errors |predicted / measured - 1| of one kind of kernel on one device: ``median`` and ``p90``.

    ``rows``: least and most query heads per cached head among the points; beyond them a prediction is extrapolated.
    """

    median: float
    p90: float
    rows: tuple[int, int]


Doubts = Mapping[tuple[str, str], Doubt]  # by the device's name and the row's kernel, without what limits it


def read_doubts(folder: Path) -> dict[tuple[str, str], Doubt]:
    """Of every device whose yaml has ``held_out``; ValueError names the file where it is none."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        for kernel, said in (raw.get("held_out") or {}).items():
            found[raw["profile"]["name"], f"profile:{kernel}"] = _doubt(said, f"{path.name}: held_out.{kernel}")
    return found


def doubt_of(doubts: Doubts, device: str | None, kernel: str | None) -> Doubt | None:
    """Of a predicted row; None where nothing was held against measurements."""
    return doubts.get((device or "", (kernel or "").split(" ")[0]))


def could_turn(fast: float | None, slow: float | None) -> float | None:
    """The largest ratio of two times that errors ``fast`` and ``slow`` could turn; None where one is unknown."""
    return None if fast is None or slow is None else (1 + slow) / (1 - fast)


def _doubt(raw: object, name: str) -> Doubt:
    if not isinstance(raw, Mapping) or set(raw) != {*FIELDS}:
        raise ValueError(f"{name} must hold {', '.join(FIELDS)}; got {raw!r}")
    if not 0 <= raw["median"] <= raw["p90"] < 1:
        raise ValueError(f"{name} must have 0 <= median <= p90 < 1; got {raw['median']} and {raw['p90']}")
    low, high = raw["rows"]
    return Doubt(float(raw["median"]), float(raw["p90"]), (int(low), int(high)))
