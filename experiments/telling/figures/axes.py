"""The axes of the figures: all logarithmic, with ticks a person reads (``4k``, ``16 MiB``, ``2,000``)."""

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from experiments.telling.words import binary_size, number, plain_number
from variants.contract.tokens import format_tokens

MOST_TICKS = 9
ROOM = 1.3  # names of ticks stand clear of each other where their values are this factor apart
LEAST_SPAN = 2.0  # an axis of values reaches over at least this factor
DECADES, FEW, MANY = (1.0,), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # ticks within a decade, by the span


def context_axis(ax: Axes, contexts: Sequence[int]) -> None:
    """Log2 axis of cached tokens with ticks ``1k 2k 4k``; a single context still gets its tick."""
    _powers_of_two(ax, contexts, lambda v: format_tokens(round(v)))
    ax.set_xlabel("context (cached tokens, 1k = 1024)")


def batch_axis(ax: Axes, batches: Sequence[int]) -> None:
    """Log2 axis of sequences that are decoded together."""
    _powers_of_two(ax, batches, plain_number)
    ax.set_xlabel("batch (sequences decoded together)")


def device_axis(ax: Axes, tps: Sequence[int]) -> None:
    """Log2 axis of devices that share the heads; a count between two powers is named where there is room for it."""
    _powers_of_two(ax, tps, plain_number)
    named = [float(tick) for tick in ax.get_xticks()]
    for tp in tps:
        if tp > 0 and len(named) < MOST_TICKS and all(max(tp, other) >= ROOM * min(tp, other) for other in named):
            named.append(tp)
    _ticks(ax.xaxis, sorted(named), plain_number)
    ax.set_xlabel("tp (devices that share the heads)")


def _powers_of_two(ax: Axes, values: Sequence[int], name: Callable[[float], str]) -> None:
    shown = [c for c in values if c > 0] or [1]
    low, high = min(shown), max(shown)
    margin = 1.18 if low < high else 2.0
    ax.set_xscale("log", base=2)
    ax.set_xlim(low / margin, high * margin)
    powers = [1 << n for n in range(low.bit_length() - 1, high.bit_length() + 1) if low <= 1 << n <= high]
    at = powers if len(powers) > 1 else sorted({low, high})
    _ticks(ax.xaxis, at, name)


def value_axis(ax: Axes, values: Sequence[float], label: str, foot: bool = False, head: bool = False) -> None:
    """Log10 axis over ``values`` (all > 0); ``foot`` leaves room for failure marks, ``head`` for a ceiling's name."""
    ax.set_yscale("log")
    ax.set_ylabel(label)
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    widen = max(1.0, LEAST_SPAN / (high / low)) ** 0.5  # noise must not fill the axis
    low, high = low / widen, high * widen
    span = high / low
    ax.set_ylim(low / span ** (0.2 if foot else 0.06), high * span ** (0.14 if head else 0.06))
    if not values:
        _ticks(ax.yaxis, [], number)
        return
    subs = DECADES if span > 3000 else FEW if span > 8 else MANY
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: plain_number(v)))
    ax.yaxis.set_minor_locator(NullLocator())


def byte_axis(ax: Axes, values: Sequence[float], label: str, foot: bool = False) -> None:
    """Log2 axis of bytes with ticks in KiB, MiB, GiB."""
    value_axis(ax, values, label, foot)
    ax.set_yscale("log", base=2)
    low, high = ax.get_ylim()
    powers = [2**n for n in range(64) if low <= 2**n <= high]
    _ticks(ax.yaxis, powers if values else [], binary_size)


def intensity_axis(ax: Axes, values: Sequence[float]) -> None:
    """Log2 axis of FLOP per byte."""
    low, high = (min(values), max(values)) if values else (1.0, 1.0)
    ax.set_xscale("log", base=2)
    ax.set_xlim(low / 1.6, high * 2.2)
    first, last = math.floor(math.log2(low / 1.6)), math.ceil(math.log2(high * 2.2))
    _ticks(ax.xaxis, [2.0**n for n in range(first, last + 1)], lambda v: f"{v:.4g}")
    ax.set_xlabel("FLOP per byte read or written")


def _ticks(axis: Axis, at: Sequence[float], name: Callable[[float], str]) -> None:
    step = -(-len(at) // MOST_TICKS) or 1
    axis.set_major_locator(FixedLocator(list(at)[::step]))
    axis.set_major_formatter(FuncFormatter(lambda v, _: name(v)))
    axis.set_minor_locator(NullLocator())
