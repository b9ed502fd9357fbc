"""Which of several rows of one point counts: the one that started last. No pandas, and 24 bytes a row."""

import hashlib
import json
from array import array
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from experiments.record import Measurement

# The key is equal on every machine, so a row only supersedes one of its own machine.
IDENTITY = ("key", "device", "host")


def seconds(text: str | None) -> float:
    """Seconds since the epoch; a row that does not say when it started counts as the oldest."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return float("-inf")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class Newest:
    """Told rows one after the other, says which to keep: rows themselves are not held."""

    def __init__(self) -> None:
        self._identities = bytearray()  # 16 B of hash a row
        self._started = array("d")

    def __len__(self) -> int:
        return len(self._started)

    def see(self, row: Measurement) -> None:
        """The next row."""
        text = json.dumps([getattr(row, column) for column in IDENTITY])
        self._identities += hashlib.blake2b(text.encode(), digest_size=16).digest()
        self._started.append(seconds(row.started_at))

    def kept(self) -> NDArray[np.bool_]:
        """For every row in the order seen: whether it is the newest of its point, of equally old ones the last seen."""
        halves = np.frombuffer(self._identities, dtype=np.uint64).reshape(-1, 2)
        seen = np.arange(len(self))
        order = np.lexsort((seen, np.array(self._started), halves[:, 1], halves[:, 0]))
        by_point = halves[order]
        last = np.append((by_point[1:] != by_point[:-1]).any(axis=1), True)[: len(self)]
        kept = np.zeros(len(self), dtype=np.bool_)
        kept[order[last]] = True
        return kept
