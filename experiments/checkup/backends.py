"""Which backends run here, in their own words: each is asked with small requests."""

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.checkup.check import Check

SHOWN = 3  # reasons of one refusal


@dataclass(frozen=True)
class Backends:
    """``refusals``: backend -> device -> its reasons for the request that it minds least; none: it runs there."""

    refusals: Mapping[str, Mapping[str, tuple[str, ...]]]

    def running(self, device: str) -> list[str]:
        """Backends that take at least one request on a device."""
        return [name for name, answers in self.refusals.items() if answers.get(device) == ()]


def check(seen: Backends) -> list[Check]:
    """One check per backend; if none runs anywhere, nothing can be measured."""
    if not any(() in answers.values() for answers in seen.refusals.values()):
        advice = "see the reasons of each backend; eager needs nothing but torch"
        return [Check("backends", "problem", "none runs on any device here", advice, stops=True)]
    return [_backend(name, answers) for name, answers in seen.refusals.items()]


def _backend(name: str, answers: Mapping[str, tuple[str, ...]]) -> Check:
    runs = [device for device, reasons in answers.items() if not reasons]
    if runs:
        return Check(f"backend {name}", "ok", f"runs on {', '.join(runs)}")
    device, reasons = min(answers.items(), key=lambda item: len(item[1]))
    more = f" (and {len(reasons) - SHOWN} more reasons)" if len(reasons) > SHOWN else ""
    numbers = f"runs on no device here; {device} was asked"
    return Check(f"backend {name}", "note", numbers, "; ".join(reasons[:SHOWN]) + more)
