"""The parts of a decode step, each alone: project, absorb, append, output (attending is a scope of its own)."""

import torch

from experiments.measuring.prepare import Replica
from experiments.measuring.timing import Call
from experiments.measuring.whole import relative
from variants.contract.scopes import part_weights
from variants.protocols import Absorbing, Entries, Spec

ALONE = ("project", "absorb", "append", "output")


def part_reasons(scope: str, spec: Spec) -> list[str]:
    """Why there is no such part; empty = there is. No tensors."""
    if scope == "absorb" and not part_weights("absorb", spec):
        return ["there is nothing to absorb: no product stands between the projections and what is cached"]
    return []


class Parts:
    """A replica's step taken apart: the same code in the same shapes, each part on what the one before it gave."""

    def __init__(self, replica: Replica) -> None:
        self.step, self.x, self.position = replica.planned, replica.x, replica.position
        self.attention = self.step.attention
        # the same weights without absorption: what is left of query, entry and output is projecting
        self.plain = self.attention.as_form(self.attention.spec.prefilling())
        self.query, self.entry = self._project()
        self.append()
        attended = self._absorb_query() if self._absorbs else self.query
        self.attended = self.step.attend(attended)[0].clone()  # holds until the next call only
        self.value = self._absorb_output() if self._absorbs else self.attended

    def call(self, scope: str) -> Call:
        """What is timed; keep it as long as its timer does."""
        calls: dict[str, Call] = {
            "project": self._project,
            "absorb": lambda: (self._absorb_query(), self._absorb_output()),
            "append": self.append,
            "output": self.output,
        }
        return calls[scope]

    def error(self) -> float:
        """How far the parts, one after another, are from the step as a whole."""
        return relative(self.output(), self.step(self.x, self.position))

    def append(self) -> None:
        """Write the new entries."""
        self.step.cache.write(self.entry, self.position)

    def output(self) -> torch.Tensor:
        """Project attended values back to the model's width."""
        return self.plain.output(self.value)

    @property
    def _absorbs(self) -> bool:
        return part_weights("absorb", self.attention.spec) > 0

    def _project(self) -> tuple[torch.Tensor, Entries]:
        return self.plain.query(self.x, self.position), self.plain.entry(self.x, self.position)

    def _absorb_query(self) -> torch.Tensor:
        return self._absorbing.absorb_query(self.query)

    def _absorb_output(self) -> torch.Tensor:
        return self._absorbing.absorb_output(self.attended)

    @property
    def _absorbing(self) -> Absorbing:
        if not isinstance(self.attention, Absorbing):
            name = type(self.attention).__name__
            raise TypeError(f"{name} has Part.ABSORB products and must be Absorbing, so that they can be run alone")
        return self.attention
