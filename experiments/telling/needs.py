"""What the whole model must meet on a device at the decision point, as far as someone has asked for it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from variants.contract.amounts import parse_bytes


@dataclass(frozen=True)
class Needs:
    """Null is: not asked. ``memory``: bytes of one device for caches, weights and reserve already taken off.

    ``ms_per_token`` of the whole model at the decision point's batch and context, ``ms_to_first_token`` by its
    ``prefill`` rows. ``other_ms``: what a token takes beside the attention layers; null: reading the model's other
    weights at the read ceiling. Raises ValueError naming the field.
    """

    memory: int | None = None
    ms_per_token: float | None = None
    ms_to_first_token: float | None = None
    other_ms: float | None = None

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> "Needs":
        """Build from a config mapping; memory is written with its unit, ``60GB``."""
        known = [f.name for f in fields(Needs)]
        wrong = sorted({*raw} ^ {*known})
        if wrong:
            raise ValueError(f"report.needs must have exactly the fields {', '.join(known)}; check {wrong[0]!r}")
        memory = raw["memory"]
        return Needs(
            memory=None if memory is None else parse_bytes(str(memory), "report.needs.memory"),
            ms_per_token=_ms("ms_per_token", raw["ms_per_token"], least=True),
            ms_to_first_token=_ms("ms_to_first_token", raw["ms_to_first_token"], least=True),
            other_ms=_ms("other_ms", raw["other_ms"], least=False),
        )

    @property
    def asked(self) -> bool:
        """Whether anything can rule a variant out."""
        return any(need is not None for need in (self.memory, self.ms_per_token, self.ms_to_first_token))


def _ms(name: str, value: object, least: bool) -> float | None:
    if value is None:
        return None
    wrong = isinstance(value, bool) or not isinstance(value, int | float)
    if wrong or not 0 <= value < float("inf") or (least and not value):  # type: ignore[operator]
        raise ValueError(
            f"report.needs.{name} must be milliseconds, a number {'> 0' if least else '>= 0'}; got {value!r}"
        )
    return float(value)  # type: ignore[arg-type]
