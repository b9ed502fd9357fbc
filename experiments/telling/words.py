"""How numbers are said: bytes, times with their interval, and ratios in words."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from variants.contract.tokens import format_tokens

NOTHING = "n/a"


def binary_size(count: float) -> str:
    """Bytes in the largest binary unit that leaves at least 1: 2684354560 -> ``2.5 GiB``."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.4g} {unit}"


def tokens(context: int | None) -> str:
    """A context as people write it (``8k``); a row of a config that could not be built has none."""
    return NOTHING if context is None else format_tokens(context)


def exact_bytes(bytes_: float | None) -> str:
    """Bytes to the byte and in binary units: ``134,217,728 B (128 MiB)``."""
    if bytes_ is None:
        return NOTHING
    return f"{count(bytes_)} B" if bytes_ < 1024 else f"{count(bytes_)} B ({binary_size(bytes_)})"


def number(value: float | None, digits: int = 4) -> str:
    """A number with ``digits`` significant digits, thousands separated, never in powers of ten."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{decimals}f}"


def plain_number(value: float) -> str:
    """A round number with no more decimals than it needs: ``2,000``, ``0.00001``."""
    text = f"{value:,.12f}"
    return text.rstrip("0").rstrip(".")


def count(value: float | None) -> str:
    """A count to the last unit; two decimals only where it is a fraction (bytes per token of a window)."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"


def spanned(values: Iterable[int]) -> str:
    """``30``, or the least and the greatest, ``28-96``."""
    low, high = min(both := list(values)), max(both)
    return str(low) if low == high else f"{low}-{high}"


def percent(fraction: float | None) -> str:
    """0.613 -> ``61 %``."""
    return NOTHING if fraction is None else f"{100 * fraction:.0f} %" if fraction >= 0.1 else f"{100 * fraction:.1f} %"


def times(ratio: float) -> str:
    """A ratio >= 1 as people say it: ``1.25x``, ``12.5x``, ``514,535x``."""
    return f"{ratio:,.2f}x" if ratio < 10 else f"{ratio:,.1f}x" if ratio < 100 else f"{ratio:,.0f}x"


def speed(new: str, new_us: float, baseline: str, baseline_us: float) -> str:
    """``gqa is 1.25x faster than mha``: speed-up = baseline / new, or its inverse as ``slower``; never below 1."""
    return _compared(new, baseline, baseline_us / new_us, "faster", "slower", "as fast as")


def size(new: str, new_bytes: float, baseline: str, baseline_bytes: float) -> str:
    """``gqa caches 4.00x fewer bytes than mha``, or ``more`` with the inverse."""
    words = ("fewer bytes", "more bytes", "as many bytes as")
    return _compared(new, baseline, baseline_bytes / new_bytes, *words, verb="caches")


def latency(row: Mapping[str, Any], unit: str = "") -> str:
    """``812.4 us [805.1, 820.9] n=30``: median, interval and number of samples; ``812.4 us, predicted`` has neither."""
    if row["origin"] == "predicted":
        return f"{number(row['latency_us_p50'])}{unit}, predicted"
    low, high, samples = row["latency_us_ci_low"], row["latency_us_ci_high"], row["samples"]
    interval = f"[{number(low)}, {number(high)}]" if low is not None and high is not None else "[no CI]"
    return f"{number(row['latency_us_p50'])}{unit} {interval} n={samples if samples is not None else NOTHING}"


def computed_by(row: Mapping[str, Any]) -> str:
    """``numba_split_kv on paged``: who computed a record, and on what."""
    return f"{row['backend']} on {row['storage']}"


def _compared(new: str, baseline: str, ratio: float, above: str, below: str, equal: str, verb: str = "is") -> str:
    said = times(max(ratio, 1 / ratio))
    if said == "1.00x":
        return f"{new} {verb} {equal} {baseline}"
    return f"{new} {verb} {said} {above if ratio > 1 else below} than {baseline}"
