"""Tiles of queries against keys whose sums stay in registers.

A few query rows meet a few tokens at a time, so that what is loaded serves several multiply-adds; keys are read where
they lie and widened in registers. With one row per head memory is the limit, with many it is arithmetic.

Arrays come whole, with the row or place that is meant: a slice of an array would be counted, and threads that count the
references of one array wait for each other.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.coming import Coming
from variants.backend.numba_split_kv.vectors import (
    FEW,
    FLOAT,
    INDEX,
    LANES,
    Builder,
    Sums,
    Value,
    data,
    instruction,
    load,
    load_one,
    number,
    pick,
    rows_of,
    totals,
)

TOKENS = {1: 8, 2: 4, 4: 4}  # rows of a tile -> tokens beside them: 8 to 16 sums hide the latency of a multiply-add
Read = Callable[[Builder, Value, Value], Value]


@instruction
def score(
    typing: Any, q: Any, q_row: Any, rows: Any, column: Any, memory: Any, at: Any, first: Any, start: Any, stop: Any,
    width: Any, scores: Any, row: Any, cache: Any, ahead: Any, begin: Any, end: Any,
) -> Any:  # fmt: skip
    """scores[row + r, t] += q[q_row + r, column:column + width] . memory[at[first + t]:.. + width], t in range.

    ``rows`` is 4, 2 or 1: see ``few``. Meanwhile columns [begin, end) of cache[at[ahead + t]] are fetched.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        q, q_row, rows, column, memory, at, first, start, stop, width, scores, row, cache, ahead, begin, end = arguments
        keys, places = data(context, builder, kinds[4], memory), data(context, builder, kinds[5], at)
        here = builder.gep(places, [first])
        coming = Coming(builder, data(context, builder, kinds[12], cache), builder.gep(places, [ahead]))
        for count in FEW:
            with builder.if_then(builder.icmp_signed("==", rows, number(count))):
                queries = rows_of(context, builder, kinds[0], q, q_row, count)
                queries = [builder.gep(pointer, [column]) for pointer in queries]
                out = rows_of(context, builder, kinds[10], scores, row, count)
                whole = builder.sub(stop, builder.srem(builder.sub(stop, start), number(TOKENS[count])))
                for low, high, size in ((start, whole, TOKENS[count]), (whole, stop, 1)):
                    with cgutils.for_range_slice(builder, low, high, number(size), INDEX) as (token, _):
                        each = [builder.add(token, number(i)) for i in range(size)]
                        for t in each:
                            coming.fetch(t, begin, end)
                        some = [builder.gep(keys, [builder.load(builder.gep(here, [t]))]) for t in each]
                        _tile(builder, queries, some, width, [builder.gep(pointer, [token]) for pointer in out])
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, i, i, i, memory, at, i, i, i, i, scores, i, cache, i, i, i), generate


def _tile(builder: Builder, q: list[Value], keys: list[Value], width: Value, out: list[Value]) -> None:
    """Products of every row with every key of a tile, added to the scores that begin at ``out``."""
    sums = Sums(builder, len(q) * len(keys))
    whole = builder.sub(width, builder.srem(width, number(LANES)))
    _columns(builder, sums, load, q, keys, number(0), whole, LANES)
    each = LANES // len(keys)  # rows whose totals fill a vector
    for first in range(0, len(q), each):
        added, apart = totals(builder, sums.values()[first * len(keys) : (first + each) * len(keys)])
        for row in range(first, min(first + each, len(q))):
            lanes = range((row - first) * len(keys) * apart, (row - first + 1) * len(keys) * apart, apart)
            _increase(builder, out[row], pick(builder, added, added, lanes))
    with builder.if_then(builder.icmp_signed("<", whole, width), likely=False):
        _ends(builder, q, keys, whole, width, out)


def _ends(builder: Builder, q: list[Value], keys: list[Value], first: Value, width: Value, out: list[Value]) -> None:
    """The columns that do not fill a vector, one by one."""
    sums = Sums(builder, len(q) * len(keys), FLOAT)
    _columns(builder, sums, load_one, q, keys, first, width, 1)
    for index, total in enumerate(sums.values()):
        at = builder.gep(out[index // len(keys)], [number(index % len(keys))])
        builder.store(builder.fadd(builder.load(at), total), at)


def _columns(
    builder: Builder, sums: Sums, read: Read, q: list[Value], keys: list[Value], first: Value, stop: Value, step: int
) -> None:
    """Every row with every key, ``step`` columns at a time."""
    with cgutils.for_range_slice(builder, first, stop, number(step), INDEX) as (column, _):
        k = [read(builder, key, column) for key in keys]
        for r, pointer in enumerate(q):
            row = read(builder, pointer, column)
            for t in range(len(keys)):
                sums.add(r * len(keys) + t, row, k[t])


def _increase(builder: Builder, pointer: Value, added: Value) -> None:
    """Add a short vector to the floats at ``pointer``."""
    at = builder.bitcast(pointer, added.type.as_pointer())
    builder.store(builder.fadd(builder.load(at, align=4), added), at, align=4)
