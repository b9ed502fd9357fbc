"""Amounts of memory as people write them: ``80GB``, ``1.5GiB``."""

import re
from fractions import Fraction

UNITS = {"B": 1} | {
    unit: base**power
    for power, letter in enumerate("KMGTP", 1)
    for unit, base in ((f"{letter}B", 1000), (f"{letter}iB", 1024))
}
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([KMGTP]?i?B)")


def parse_bytes(value: str, name: str) -> int:
    """``80GB`` is 80 * 10^9 and ``80GiB`` 80 * 2^30 bytes.

    A number without a unit could be either, or bytes: it is refused but for 0. Raises ValueError naming ``name``.
    """
    if value.strip() == "0":
        return 0
    found = _AMOUNT.fullmatch(value.strip())
    count = Fraction(found[1]) * UNITS.get(found[2], 0) if found else Fraction(0)
    if not count or count.denominator != 1:
        raise ValueError(f"{name} must be whole bytes with a unit ({', '.join(UNITS)}), e.g. 80GB; got {value!r}")
    return count.numerator
