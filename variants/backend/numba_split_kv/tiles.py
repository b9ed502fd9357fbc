"""Tiles of products whose sums stay in registers: queries against keys, weights against values.

A few query rows meet a few tokens at a time, so that what is loaded serves several multiply-adds; keys and values are
read where they lie and widened in registers. With one row per head memory is the limit, with many it is arithmetic.

Arrays come whole, with the row or place that is meant: a slice of an array would be counted, and threads that count the
references of one array wait for each other.
"""

from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.core import cgutils

from variants.backend.numba_split_kv.vectors import (
    FLOAT,
    INDEX,
    LANES,
    LINE,
    VECTOR,
    Builder,
    Sums,
    Value,
    data,
    element_bytes,
    instruction,
    load,
    load_one,
    number,
    pick,
    prefetch,
    row_of,
    spread,
    store,
    totals,
)

TOKENS = {1: 8, 2: 4, 4: 4}  # rows of a tile -> tokens beside them: 8 to 16 sums hide the latency of a multiply-add
PANEL = {1: 8, 2: 4, 4: 4}  # rows of a tile -> vectors of columns beside them
FEW = (4, 2, 1)  # rows that a tile may have


@njit(inline="always")
def few(left: int) -> int:
    """Rows of the next tile when so many are left."""
    return 4 if left >= 4 else 2 if left >= 2 else 1


@instruction
def score(
    typing: Any, q: Any, q_row: Any, rows: Any, column: Any, memory: Any, at: Any, first: Any, start: Any, stop: Any,
    width: Any, scores: Any, row: Any,
) -> Any:  # fmt: skip
    """scores[row + r, t] += q[q_row + r, column:column + width] . memory[at[first + t]:.. + width], t in range.

    ``rows`` is 4, 2 or 1: see ``few``.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        q, q_row, rows, column, memory, at, first, start, stop, width, scores, row = arguments
        keys, here = (
            data(context, builder, kinds[4], memory),
            builder.gep(data(context, builder, kinds[5], at), [first]),
        )
        for count in FEW:
            with builder.if_then(builder.icmp_signed("==", rows, number(count))):
                queries = _rows(context, builder, kinds[0], q, q_row, count)
                queries = [builder.gep(pointer, [column]) for pointer in queries]
                out = _rows(context, builder, kinds[10], scores, row, count)
                whole = builder.sub(stop, builder.srem(builder.sub(stop, start), number(TOKENS[count])))
                for begin, end, size in ((start, whole, TOKENS[count]), (whole, stop, 1)):
                    with cgutils.for_range_slice(builder, begin, end, number(size), INDEX) as (token, _):
                        begins = [builder.load(builder.gep(here, [builder.add(token, number(i))])) for i in range(size)]
                        _score_tile(builder, queries, [builder.gep(keys, [b]) for b in begins], width, out, token)
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, i, i, i, memory, at, i, i, i, i, scores, i), generate


@instruction
def weigh(
    typing: Any, weights: Any, row: Any, rows: Any, memory: Any, at: Any, first: Any, start: Any, stop: Any,
    width: Any, sums: Any, out_row: Any,
) -> Any:  # fmt: skip
    """sums[out_row + r, :width] += weights[row + r, t] memory[at[first + t]:.. + width], summed over t in range.

    ``rows`` is 4, 2 or 1: see ``few``.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (weights, row, rows, memory, at, first, start, stop, width, sums, out_row) = signature.args, arguments
        values, here = (
            data(context, builder, kinds[3], memory),
            builder.gep(data(context, builder, kinds[4], at), [first]),
        )

        def panels(out: list[Value], weighed: list[Value], begin: Value, end: Value, vectors: int) -> None:
            with cgutils.for_range_slice(builder, begin, end, number(vectors * LANES or 1), INDEX) as (column, _):
                panel = _Panel(builder, out, column, vectors)
                with cgutils.for_range_slice(builder, start, stop, number(1), INDEX) as (token, _):
                    value = builder.gep(values, [builder.load(builder.gep(here, [token]))])
                    panel.add([load_one(builder, pointer, token) for pointer in weighed], value)
                panel.write()

        for count in FEW:
            with builder.if_then(builder.icmp_signed("==", rows, number(count))):
                weighed = _rows(context, builder, kinds[0], weights, row, count)
                out = _rows(context, builder, kinds[9], sums, out_row, count)
                broad, whole = (builder.sub(width, builder.srem(width, number(v * LANES))) for v in (PANEL[count], 1))
                panels(out, weighed, number(0), broad, PANEL[count])
                panels(out, weighed, broad, whole, 1)
                panels(out, weighed, whole, width, 0)
        return context.get_dummy_value()

    i = types.int64
    return types.none(weights, i, i, memory, at, i, i, i, i, sums, i), generate


@instruction
def fetch(typing: Any, memory: Any, at: Any, start: Any, stop: Any, width: Any) -> Any:
    """Ask for memory[at[t]:.. + width] to be brought to the second-level cache, for start <= t < stop.

    Line after line: that wakes the hardware's own prefetcher, which has more requests under way than a core may make.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, start, stop, width) = signature.args, arguments
        pointer, places = data(context, builder, kinds[0], memory), data(context, builder, kinds[1], at)
        line = number(LINE // element_bytes(pointer.type.pointee))
        with cgutils.for_range_slice(builder, start, stop, number(1), INDEX) as (token, _):
            row = builder.gep(pointer, [builder.load(builder.gep(places, [token]))])
            with cgutils.for_range_slice(builder, number(0), width, line, INDEX) as (column, _):
                prefetch(builder, builder.gep(row, [column]))
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, i), generate


def _rows(context: Any, builder: Builder, kind: Any, array: Value, first: Value, count: int) -> list[Value]:
    """Pointers to some rows of an array."""
    return [row_of(context, builder, kind, array, builder.add(first, number(r))) for r in range(count)]


def _score_tile(
    builder: Builder, q: list[Value], keys: list[Value], width: Value, out: list[Value], token: Value
) -> None:
    """Products of every row with every key of a tile, added to the scores from ``token`` on."""
    whole = builder.sub(width, builder.srem(width, number(LANES)))
    sums = Sums(builder, len(q) * len(keys))
    with cgutils.for_range_slice(builder, number(0), whole, number(LANES), INDEX) as (column, _):
        _multiply(builder, sums, load, q, keys, column)
    each = LANES // len(keys)  # rows whose totals fill a vector
    for first in range(0, len(q), each):
        added = totals(builder, sums.values()[first * len(keys) : (first + each) * len(keys)])
        for row in range(first, min(first + each, len(q))):
            lanes = range((row - first) * len(keys), (row - first + 1) * len(keys))
            _increase(builder, builder.gep(out[row], [token]), pick(builder, added, added, lanes))
    with builder.if_then(builder.icmp_signed("<", whole, width), likely=False):
        _score_ends(builder, q, keys, whole, width, [builder.gep(pointer, [token]) for pointer in out])


def _score_ends(
    builder: Builder, q: list[Value], keys: list[Value], first: Value, width: Value, out: list[Value]
) -> None:
    """The columns that do not fill a vector, one by one."""
    sums = Sums(builder, len(q) * len(keys), FLOAT)
    with cgutils.for_range_slice(builder, first, width, number(1), INDEX) as (column, _):
        _multiply(builder, sums, load_one, q, keys, column)
    for index, total in enumerate(sums.values()):
        at = builder.gep(out[index // len(keys)], [number(index % len(keys))])
        builder.store(builder.fadd(builder.load(at), total), at)


def _multiply(
    builder: Builder, sums: Sums, read: Callable[..., Value], q: list[Value], keys: list[Value], column: Value
) -> None:
    """Every row with every key, at one place."""
    k = [read(builder, key, column) for key in keys]
    for r, pointer in enumerate(q):
        row = read(builder, pointer, column)
        for t in range(len(keys)):
            sums.add(r * len(keys) + t, row, k[t])


def _increase(builder: Builder, pointer: Value, added: Value) -> None:
    """Add a short vector to the floats at ``pointer``."""
    at = builder.bitcast(pointer, added.type.as_pointer())
    builder.store(builder.fadd(builder.load(at, align=4), added), at, align=4)


class _Panel:
    """Some columns of the output of some rows, in registers; 0 vectors: one column."""

    def __init__(self, builder: Builder, out: list[Value], column: Value, vectors: int) -> None:
        self.builder, self.vectors = builder, vectors
        self.columns = [builder.add(column, number(v * LANES)) for v in range(max(1, vectors))]
        self.places = [(pointer, at) for pointer in out for at in self.columns]
        self.sums = Sums(builder, len(self.places), VECTOR if vectors else FLOAT)
        for index, (pointer, at) in enumerate(self.places):
            self.sums.set(index, self._read(pointer, at))

    def add(self, weights: list[Value], value: Value) -> None:
        """Every row's weight times these columns of one value."""
        read = [self._read(value, at) for at in self.columns]
        for r, weight in enumerate(weights):
            factor = spread(self.builder, weight) if self.vectors else weight
            for i, v in enumerate(read):
                self.sums.add(r * len(read) + i, factor, v)

    def write(self) -> None:
        """Put the sums back."""
        for total, (pointer, at) in zip(self.sums.values(), self.places, strict=True):
            store(self.builder, total, pointer, at)

    def _read(self, pointer: Value, at: Value) -> Value:
        return (load if self.vectors else load_one)(self.builder, pointer, at)
