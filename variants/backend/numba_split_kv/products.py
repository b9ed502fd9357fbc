"""Scores and weighted values as products on a CPU's matrix unit, for groups of many query heads.

Keys are A as they lie in the cache, queries B, so scores come out as [tokens, rows]; weights are A, values B. Up to 32
rows of queries go together, so that what is loaded of keys and values serves two products.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.ahead import Ahead
from variants.backend.numba_split_kv.amx import WORDS, A, B, C, close_sums, load_tile, multiply, open_sums
from variants.backend.numba_split_kv.columns import EDGE, STEP
from variants.backend.numba_split_kv.vectors import LINE, Builder, Value, data, instruction, number, row_of


@instruction
def score_tokens(
    typing: Any, q: Any, tile: Any, two: Any, step: Any, steps: Any, memory: Any, place: Any, stride: Any, s: Any,
    s_row: Any, apart: Any, lines: Any, begin: Any, end: Any,
) -> Any:  # fmt: skip
    """s[s_row + t, :16] = keys of 32 tokens at memory[place + t * stride] x steps [step, step + steps) of a tile of q.

    ``two``: of the next tile as well, whose scores lie ``apart`` rows further. From step 0 on, scores are set; later
    steps are added. Meanwhile lines[begin:end] are asked for.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (q, tile, two, step, steps, memory, place, stride, s, s_row, apart, lines, begin, end) = (
            signature.args,
            arguments,
        )
        keys = _halves(builder, builder.gep(data(context, builder, kinds[5], memory), [place]), stride)
        tiles = [builder.add(tile, number(i)) for i in (0, 1)]
        first = [builder.mul(step, number(WORDS))]
        queries = [builder.gep(row_of(context, builder, kinds[0], q, t), first) for t in tiles]
        scores = [row_of(context, builder, kinds[8], s, builder.add(s_row, a)) for a in (number(0), apart)]
        sums = [half for pointer in scores for half in _halves(builder, pointer, number(EDGE))]
        ahead = Ahead(builder, data(context, builder, kinds[11], lines), begin, end, steps)
        bytes_apart, fresh = builder.mul(stride, number(2)), builder.icmp_signed("==", step, number(0))

        def score(count: int) -> None:
            open_sums(builder, sums[: 2 * count], fresh)
            with cgutils.for_range(builder, steps) as loop:
                columns = builder.mul(loop.index, number(STEP))
                for register, key in zip(A, keys, strict=True):
                    load_tile(builder, register, builder.gep(key, [columns]), bytes_apart)
                for i, query in enumerate(queries[:count]):
                    load_tile(builder, B[i], builder.gep(query, [builder.mul(loop.index, number(WORDS))]), number(LINE))
                    for half in (0, 1):
                        multiply(builder, C[2 * i + half], A[half], B[i])
                ahead.ask()
            close_sums(builder, sums[: 2 * count])

        _once_or_twice(builder, two, score)
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, i, types.boolean, i, i, memory, i, i, s, i, i, lines, i, i), generate


@instruction
def weigh_tokens(
    typing: Any, weights: Any, w_row: Any, w_apart: Any, two: Any, steps: Any, woven: Any, row: Any, sums: Any,
    s_row: Any, s_apart: Any, fresh: Any,
) -> Any:  # fmt: skip
    """sums[s_row + half] += weights[w_row + step] x woven[row + 2 * step + half] for both halves, summed over steps.

    ``two``: of the next tile of rows as well, whose weights and sums lie so many tiles further. ``fresh``: set them.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (weights, w_row, w_apart, two, steps, woven, row, sums, s_row, s_apart, fresh) = (
            signature.args,
            arguments,
        )
        rows, totals = (
            [row_of(context, builder, kinds[i], array, builder.add(first, a)) for a in (number(0), apart)]
            for i, array, first, apart in ((0, weights, w_row, w_apart), (7, sums, s_row, s_apart))
        )
        values = row_of(context, builder, kinds[5], woven, row)
        sums = [builder.gep(pointer, [number(half * WORDS)]) for pointer in totals for half in (0, 1)]

        def weigh(count: int) -> None:
            open_sums(builder, sums[: 2 * count], fresh)
            with cgutils.for_range(builder, steps) as loop:
                tile = builder.mul(loop.index, number(WORDS))
                for half in (0, 1):
                    at = builder.add(builder.mul(tile, number(2)), number(half * WORDS))
                    load_tile(builder, B[half], builder.gep(values, [at]), number(LINE))
                for i, pointer in enumerate(rows[:count]):
                    load_tile(builder, A[i], builder.gep(pointer, [tile]), number(LINE))
                    for half in (0, 1):
                        multiply(builder, C[2 * i + half], A[i], B[half])
            close_sums(builder, sums[: 2 * count])

        _once_or_twice(builder, two, weigh)
        return context.get_dummy_value()

    i, b = types.int64, types.boolean
    return types.none(weights, i, i, b, i, woven, i, sums, i, i, b), generate


def _halves(builder: Builder, pointer: Value, stride: Value) -> list[Value]:
    """Where the first and the second 16 of 32 rows begin."""
    return [pointer, builder.gep(pointer, [builder.mul(stride, number(EDGE))])]


def _once_or_twice(builder: Builder, two: Value, body: Callable[[int], None]) -> None:
    """``body`` for one tile of rows or for two: registers are numbered when it is compiled."""
    with builder.if_else(two) as (then, otherwise):
        with then:
            body(2)
        with otherwise:
            body(1)
