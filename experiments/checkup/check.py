"""What a check says: a name, a verdict, the numbers it saw, and what to do."""

from dataclasses import dataclass

VERDICTS = ("ok", "note", "problem")


@dataclass(frozen=True)
class Check:
    """One judgement.

    ``ok``: nothing to do. ``note``: something cannot be measured here, or rows will carry a mark of it. ``problem``:
    what is measured now would mislead or fail. ``stops``: nothing at all can be measured until it is mended.
    Raises ValueError where the parts contradict each other.
    """

    name: str
    verdict: str
    numbers: str
    advice: str = ""
    stops: bool = False

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}; got {self.verdict!r}")
        if (self.verdict == "ok") != (not self.advice):
            raise ValueError(
                f"{self.name}: exactly what is not ok needs advice; got {self.verdict} and {self.advice!r}"
            )
        if self.stops and self.verdict != "problem":
            raise ValueError(f"{self.name}: only a problem stops; got {self.verdict}")


def size(count: float) -> str:
    """Bytes in MiB or GiB, two significant decimals at most."""
    return f"{count / 2**30:.4g} GiB" if count >= 2**30 else f"{count / 2**20:.4g} MiB"


def percent(share: float) -> str:
    """0.051 -> ``5.1 %``."""
    return f"{100 * share:.1f} %"
