"""How queries, keys and values get into the tiles of a CPU's matrix unit, and sums out of them."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.amx import HALVES, WORDS
from variants.backend.numba_split_kv.columns import EDGE, STEP, transposed
from variants.backend.numba_split_kv.vectors import (
    BITS,
    INDEX,
    LANES,
    Builder,
    Value,
    data,
    instruction,
    load,
    load_as,
    number,
    pick,
    row_of,
    store,
)

# Lanes of two vectors of 32 columns, woven within 128 bits; and of their products, in the columns' order.
WOVEN = [[lane + i + odd for lane in range(half, STEP, 8) for i in range(4) for odd in (0, STEP)] for half in (0, 4)]
ORDER = [[EDGE * half + lane + i for lane in (a, a + 4) for half in (0, 1) for i in range(4)] for a in (0, 8)]


@instruction
def pack(typing: Any, q: Any, at: Any, first: Any, steps: Any, packed: Any, tile: Any) -> Any:
    """packed[tile] = 16 rows of q, as the unit takes its second operand: [K / 32, 16 pairs of columns, 16 rows].

    Row r begins at q[at[first + r]]; two bfloat16 make a word.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (q, at, first, steps, packed, tile) = signature.args, arguments
        queries, places = (data(context, builder, kinds[i], array) for i, array in ((0, q), (1, at)))
        out, words = row_of(context, builder, kinds[4], packed, tile), ir.VectorType(BITS, LANES)
        rows = [builder.load(builder.gep(places, [builder.add(first, number(r))])) for r in range(EDGE)]
        with cgutils.for_range(builder, steps) as loop:
            column = builder.mul(loop.index, number(STEP))
            halves = [load_as(builder, HALVES, queries, builder.add(row, column)) for row in rows]
            pairs = transposed(builder, [builder.bitcast(two, words) for two in halves])
            for i, pair in enumerate(pairs):
                store(builder, pair, out, builder.add(builder.mul(loop.index, number(WORDS)), number(i * EDGE)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, at, i, i, packed, i), generate


@instruction
def gather(typing: Any, memory: Any, at: Any, first: Any, width: Any, out: Any, to: Any) -> Any:
    """Copy 32 rows together: out[to + t * width:.. + width] = memory[at[first + t]:..]; width in whole steps."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, first, width, out, to) = signature.args, arguments
        rows, places, copies = (data(context, builder, kinds[i], a) for i, a in ((0, memory), (1, at), (4, out)))
        with cgutils.for_range(builder, number(STEP)) as loop:
            begin = builder.load(builder.gep(places, [builder.add(first, loop.index)]))
            end = builder.add(to, builder.mul(loop.index, width))
            with cgutils.for_range_slice(builder, number(0), width, number(STEP), INDEX) as (column, _):
                some = load_as(builder, HALVES, rows, builder.add(begin, column))
                store(builder, some, copies, builder.add(end, column))
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, out, i), generate


@instruction
def weave(typing: Any, memory: Any, at: Any, first: Any, steps: Any, column: Any, woven: Any, row: Any) -> Any:
    """Values of two tokens at a time side by side: 32 columns from ``column`` on, in two tiles for every 32 tokens.

    woven[row + 2 * step + half, pair] holds memory[at[first + 32 * step + 2 * pair + (0, 1)] + column:..]: of every
    eight columns the first four in half 0 and the others in half 1, since words are woven within 128 bits; ``unravel``
    puts them in order at the end.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, first, steps, column, woven, row) = signature.args, arguments
        values = builder.gep(data(context, builder, kinds[0], memory), [column])
        places = builder.gep(data(context, builder, kinds[1], at), [first])
        out = row_of(context, builder, kinds[5], woven, row)
        with cgutils.for_range(builder, steps) as loop:
            token, tile = builder.mul(loop.index, number(STEP)), builder.mul(loop.index, number(2 * WORDS))
            with cgutils.for_range(builder, number(EDGE)) as inner:
                even = builder.gep(places, [builder.add(token, builder.mul(inner.index, number(2)))])
                begins = [builder.load(builder.gep(even, [number(odd)])) for odd in (0, 1)]
                two = [load_as(builder, HALVES, values, begin) for begin in begins]
                to = builder.add(tile, builder.mul(inner.index, number(EDGE)))
                for half, lanes in enumerate(WOVEN):
                    mixed = builder.bitcast(pick(builder, two[0], two[1], lanes), ir.VectorType(BITS, LANES))
                    store(builder, mixed, out, builder.add(to, number(half * WORDS)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, i, woven, i), generate


@instruction
def unravel(typing: Any, tiles: Any, first: Any, sums: Any, out: Any) -> Any:
    """sums[out:.. + 16, :] = tiles[first:], with columns in the order that they had before ``weave``."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (tiles, first, sums, out) = signature.args, arguments
        read, written = (
            row_of(context, builder, kinds[i], a, row) for i, a, row in ((0, tiles, first), (2, sums, out))
        )
        width = _columns(context, builder, kinds[2], sums)
        with cgutils.for_range_slice(builder, number(0), width, number(STEP), INDEX) as (column, _):
            tile = builder.gep(read, [builder.mul(column, number(EDGE))])
            for r in range(EDGE):
                two = [load(builder, tile, number(half * WORDS + r * EDGE)) for half in (0, 1)]
                at = builder.add(builder.mul(width, number(r)), column)
                for half, lanes in enumerate(ORDER):
                    store(builder, pick(builder, two[0], two[1], lanes), written, builder.add(at, number(half * EDGE)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(tiles, i, sums, i), generate


def _columns(context: Any, builder: Builder, kind: Any, array: Value) -> Value:
    """Columns of an array [rows, columns]."""
    return cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, value=array).shape, 2)[1]
