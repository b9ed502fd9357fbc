"""What is looked at once a point's replicas stand, beside the oracle: whether they are what a row will say they are."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from experiments.measuring import audit
from experiments.measuring.audit import Check
from experiments.measuring.prepare import SECOND_QUESTION, Replica, relative_error
from variants.contract.keep import All
from variants.noise import noise_
from variants.view import CacheView

LOOKED_AT = 1024  # tokens of a page whose numbers are looked at


def inspect(replicas: Sequence[Replica], budget: float, synchronize: Callable[[], None]) -> tuple[Check, ...]:
    """Checks of data, pages and bytes, and of an answer to a second question."""
    first = replicas[0].planned.cache.view
    used, distinct = _pages([replica.planned.cache.view for replica in replicas])
    return (
        audit.fresh(_second_error(replicas, synchronize), budget),
        audit.varied(_spread(first)),
        audit.distinct_pages(distinct, used),
    )


def counted_bytes(view: CacheView) -> int | None:
    """Bytes that tokens take in the tensors themselves; None where a stream does not keep every token.

    Counted from shapes, element sizes and lengths, not by the layout's own arithmetic: this is to be held against it.
    """
    if not all(isinstance(stream.keep, All) for stream in view.layout.streams):
        return None
    tokens = int(view.lengths.sum())
    streams = [view.stream(stream.name) for stream in view.layout.streams]
    return tokens * sum(lying.shape[1] * lying.shape[3] * lying.element_size() for lying in streams)


def _second_error(replicas: Sequence[Replica], synchronize: Callable[[], None]) -> float:
    """Error of the call after the first one, on other data: what a kernel that repeats itself gets wrong."""
    second = replicas[-1]
    if len(replicas) == 1:
        query = torch.empty_like(second.query)
        noise_(query, SECOND_QUESTION)
        second = replace(second, query=query)
    o, _ = second.planned.attend(second.query)
    synchronize()
    return relative_error(second, o)


def _spread(view: CacheView) -> float:
    """Largest less smallest number of a stream, of the stream where that is least; the newest token is not noise."""
    page = 0 if view.block_table is None else int(view.block_table[0, 0])
    length, slots = int(view.lengths[0]), view.slabs[0].shape[2]
    newest = (length - 1) % slots  # where a ring puts it, too
    noise = [slot for slot in range(min(length, slots, LOOKED_AT)) if slot != newest] or [newest]
    spreads = []
    for stream in view.layout.streams:
        numbers = view.stream(stream.name)[page][:, noise].float()
        if numbers.numel() > 1:
            spreads.append(float(numbers.max() - numbers.min()))
    return min(spreads, default=1.0)


def _pages(views: Sequence[CacheView]) -> tuple[int, int]:
    """Pages that the sequences of all replicas use, and how many of them are distinct pieces of memory."""
    pages = [place for view in views for place in _places(view)]
    return len(pages), len(set(pages))


def _places(view: CacheView) -> list[int]:
    """Where the pages in use begin in memory."""
    slab = view.slabs[0]
    if view.block_table is None:
        numbers = list(range(len(view.lengths)))
    else:
        held = -(-view.lengths // slab.shape[2])
        numbers = [int(page) for row, n in zip(view.block_table, held.tolist(), strict=True) for page in row[:n]]
    return [slab.data_ptr() + number * slab.stride(0) for number in numbers]
