"""What the next block needs from memory: listed line by line, and asked for a few lines at a time between products.

A core can wait for some 16 lines at once. More in one go hold it up while memory works, and then memory waits while it
multiplies; a few between any two pieces of work keep both busy.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.vectors import (
    BITS,
    INDEX,
    LINE,
    Builder,
    Value,
    data,
    element_bytes,
    instruction,
    number,
    pick,
    prefetch,
    store,
)

EIGHT = 8  # addresses in a vector


@instruction
def list_lines(typing: Any, memory: Any, at: Any, first: Any, tokens: Any, width: Any, lines: Any, begin: Any) -> Any:
    """lines[begin:] = addresses of the lines of memory[at[first + t]:.. + width] for every t; returns their end.

    Eight are written at a time, so that up to seven more places after the end are overwritten.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, first, tokens, width, lines, begin) = signature.args, arguments
        rows, places, out = (data(context, builder, kinds[i], a) for i, a in ((0, memory), (1, at), (5, lines)))
        elements = number(LINE // element_bytes(rows.type.pointee))
        many = ir.VectorType(INDEX, EIGHT)
        steps = ir.Constant(many, [LINE * i for i in range(EIGHT)])
        count = builder.udiv(builder.add(width, builder.sub(elements, number(1))), elements)
        with cgutils.for_range(builder, tokens) as loop:
            row = builder.gep(rows, [builder.load(builder.gep(places, [builder.add(first, loop.index)]))])
            here = builder.add(begin, builder.mul(loop.index, count))
            with cgutils.for_range_slice(builder, number(0), count, number(EIGHT), INDEX) as (line, _):
                address = builder.ptrtoint(builder.gep(row, [builder.mul(line, elements)]), INDEX)
                one = builder.insert_element(ir.Constant(many, ir.Undefined), address, ir.Constant(BITS, 0))
                store(builder, builder.add(pick(builder, one, one, [0] * EIGHT), steps), out, builder.add(here, line))
        return builder.add(begin, builder.mul(tokens, count))

    i = types.int64
    return i(memory, at, i, i, i, lines, i), generate


@instruction
def ask(typing: Any, lines: Any, begin: Any, end: Any) -> Any:
    """Ask for lines[begin:end] at once: there is nothing to do meanwhile."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        lines, begin, end = arguments
        Ahead(builder, data(context, builder, signature.args[0], lines), begin, end, number(1)).ask()
        return context.get_dummy_value()

    return types.none(lines, types.int64, types.int64), generate


class Ahead:
    """lines[begin:end], to be asked for in ``pieces`` equal lots (the last ones may be short)."""

    def __init__(self, builder: Builder, lines: Value, begin: Value, end: Value, pieces: Value) -> None:
        self.builder, self.lines, self.end = builder, lines, end
        self.next = cgutils.alloca_once_value(builder, begin)
        count = builder.add(builder.sub(end, begin), builder.sub(pieces, number(1)))
        self.lot = builder.udiv(count, pieces)

    def ask(self) -> None:
        """The next lot: always as many lines, which a branch predictor learns."""
        builder, begin = self.builder, self.builder.load(self.next)
        wanted = builder.add(begin, self.lot)
        stop = builder.select(builder.icmp_signed("<", wanted, self.end), wanted, self.end)
        with cgutils.for_range_slice(builder, begin, stop, number(1), INDEX) as (line, _):
            address = builder.load(builder.gep(self.lines, [line]))
            prefetch(builder, builder.inttoptr(address, ir.IntType(8).as_pointer()))
        builder.store(stop, self.next)
