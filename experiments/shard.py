"""A part of a run that writes by itself: which points are its own, and which folder below the run's."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Self

from experiments.measuring.row import Where

OF_THE_ATTENTION = ("attention", "kind", "spec")  # what series of one race differ in


@dataclass(frozen=True)
class Shard:
    """Number ``index``, from 0, of ``of`` shards that together are the run.

    Points are dealt by a hash of what decides them, the attention apart: storage, backend, model, dtypes, clock, batch
    and context. So attentions at one point are measured by the same shard, in the same rounds. The hash is of the point
    alone: every shard finds its own without knowing the others, and points added to a study move none.
    """

    index: int
    of: int

    @classmethod
    def parse(cls, value: object) -> Self | None:
        """Read ``i/n``; null is the whole run. ValueError for anything else."""
        if value is None:
            return None
        found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", str(value))
        if not found or int(found[1]) >= int(found[2]):
            raise ValueError(f"shard must be i/n with 0 <= i < n, e.g. shard=0/8 to shard=7/8; got {value!r}")
        return cls(int(found[1]), int(found[2]))

    def owns(self, identity: str) -> bool:
        """Whether what is called so is this shard's; exactly one of ``of`` shards says yes."""
        return int.from_bytes(hashlib.sha256(identity.encode()).digest()[:8]) % self.of == self.index

    def cut(self, places: Iterable[Where]) -> tuple[Where, ...]:
        """The points of a series that are this shard's."""
        return tuple(where for where in places if self.owns(race_identity(where)))


def race_identity(where: Where) -> str:
    """What decides a point, the attention apart; the same on every machine."""
    common = {name: value for name, value in where.series.identity().items() if name not in OF_THE_ATTENTION}
    point = {"batch": where.point.batch, "context": where.point.context}
    return json.dumps({**common, **point}, sort_keys=True, default=str)


def part_folder(shard: Shard | None, job: int | None) -> PurePath:
    """Folder of a part, relative to the run's: no two parts that may run at once have the same."""
    names = [f"shard-{shard.index}-of-{shard.of}"] if shard else []
    return PurePath(*names, *([] if job is None else [f"job-{job}"]))
