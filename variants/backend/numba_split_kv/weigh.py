"""Tiles of weights against values: some columns of the output of a few rows stay in registers over many tokens."""

from typing import Any

from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.coming import Coming
from variants.backend.numba_split_kv.vectors import (
    FEW,
    FLOAT,
    INDEX,
    LANES,
    VECTOR,
    Builder,
    Sums,
    Value,
    data,
    instruction,
    larger,
    load,
    load_one,
    number,
    rows_of,
    smaller,
    spread,
    store,
)

PANEL = {1: 8, 2: 4, 4: 4}  # rows of a tile -> vectors of columns beside them


@instruction
def weigh(
    typing: Any, weights: Any, row: Any, rows: Any, memory: Any, at: Any, first: Any, start: Any, stop: Any,
    width: Any, sums: Any, out_row: Any, cache: Any, ahead: Any, begin: Any, end: Any,
) -> Any:  # fmt: skip
    """sums[out_row + r, :width] += weights[row + r, t] memory[at[first + t]:.. + width], summed over t in range.

    ``rows`` is 4, 2 or 1: see ``few``. Meanwhile columns [begin, end) of cache[at[ahead + t]] are fetched.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        weights, row, rows, memory, at, first, start, stop, width, sums, out_row, cache, ahead, begin, end = arguments
        values, places = data(context, builder, kinds[3], memory), data(context, builder, kinds[4], at)
        here = builder.gep(places, [first])
        coming = Coming(builder, data(context, builder, kinds[11], cache), builder.gep(places, [ahead]))

        def panels(out: list[Value], weighed: list[Value], low: Value, high: Value, size: int) -> None:
            with cgutils.for_range_slice(builder, low, high, number(size), INDEX) as (column, _):
                panel = _Panel(builder, out, column, size)
                share = larger(builder, begin, column), smaller(builder, end, builder.add(column, number(size)))
                with cgutils.for_range_slice(builder, start, stop, number(1), INDEX) as (token, _):
                    coming.fetch(token, *share)
                    value = builder.gep(values, [builder.load(builder.gep(here, [token]))])
                    panel.add([load_one(builder, pointer, token) for pointer in weighed], value)
                panel.write()

        for count in FEW:
            with builder.if_then(builder.icmp_signed("==", rows, number(count))):
                weighed = rows_of(context, builder, kinds[0], weights, row, count)
                out, done = rows_of(context, builder, kinds[9], sums, out_row, count), number(0)
                for size in (PANEL[count] * LANES, LANES, 1):
                    whole = builder.sub(width, builder.srem(width, number(size)))
                    panels(out, weighed, done, whole, size)
                    done = whole
        return context.get_dummy_value()

    i = types.int64
    return types.none(weights, i, i, memory, at, i, i, i, i, sums, i, cache, i, i, i), generate


class _Panel:
    """``size`` columns of the output of some rows, in registers."""

    def __init__(self, builder: Builder, out: list[Value], column: Value, size: int) -> None:
        self.builder, self.read, self.spread = builder, load if size > 1 else load_one, size > 1
        self.columns = [builder.add(column, number(at)) for at in range(0, size, LANES)]
        self.places = [(pointer, at) for pointer in out for at in self.columns]
        self.sums = Sums(builder, len(self.places), VECTOR if size > 1 else FLOAT)
        for index, (pointer, at) in enumerate(self.places):
            self.sums.set(index, self.read(builder, pointer, at))

    def add(self, weights: list[Value], value: Value) -> None:
        """Every row's weight times these columns of one value."""
        read = [self.read(self.builder, value, at) for at in self.columns]
        for r, weight in enumerate(weights):
            factor = spread(self.builder, weight) if self.spread else weight
            for i, v in enumerate(read):
                self.sums.add(r * len(read) + i, factor, v)

    def write(self) -> None:
        """Put the sums back."""
        for total, (pointer, at) in zip(self.sums.values(), self.places, strict=True):
            store(self.builder, total, pointer, at)
