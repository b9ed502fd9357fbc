"""The softmax of a tile of scores as the matrix unit leaves them: [tokens, 16 rows], a lane per row.

Nothing is summed across lanes. Weights leave as bfloat16 in the unit's order, two tokens in a word, turned round 16
words at a time.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.ahead import Ahead
from variants.backend.numba_split_kv.exponential import LOG2_E, WORDS, power
from variants.backend.numba_split_kv.vectors import (
    FMA,
    INDEX,
    LANES,
    VECTOR,
    Builder,
    Sums,
    Value,
    call,
    data,
    every,
    instruction,
    larger_lanes,
    load,
    number,
    pick,
    row_of,
    spread,
    store,
)

EDGE = 16  # rows of a tile, and columns of a product
STEP = 32  # bfloat16 that one product sums over
PART = 4  # tokens between which the next lines are asked for
BEGINNING = -1e30  # stands for a maximum of minus infinity, of a row that has seen nothing
MARGIN = 5.0  # a maximum is taken over once it is larger by that: weights grow up to e^5, sums are seldom rescaled


@instruction
def soften_columns(
    typing: Any, scores: Any, s_row: Any, tokens: Any, scale: Any, tops: Any, totals: Any, factors: Any, row: Any,
    narrow: Any, n_row: Any, lines: Any, begin: Any, end: Any,
) -> Any:  # fmt: skip
    """Weights of 16 rows and whole steps of tokens: narrow[n_row + step] = [16 rows, 32 tokens] in bfloat16.

    Scores [s_row:.. + tokens, 16] come unscaled, minus infinity for what a row does not see. ``tops`` and ``totals``
    [row:.. + 16] hold what weights are relative to and their sum so far, and are brought up to date; True if earlier
    sums have to be multiplied by ``factors``. The online softmax of FlashAttention (Dao et al. 2022, algorithm 1).
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds = signature.args
        scores, s_row, tokens, scale, tops, totals, factors, row, narrow, n_row, lines, begin, end = arguments
        scored, out = (
            row_of(context, builder, kinds[0], scores, s_row),
            row_of(context, builder, kinds[8], narrow, n_row),
        )
        top_at, total_at, factor_at = (
            builder.gep(data(context, builder, kinds[i], array), [row])
            for i, array in ((4, tops), (5, totals), (6, factors))
        )
        pieces = builder.udiv(tokens, number(PART))
        ahead = Ahead(builder, data(context, builder, kinds[10], lines), begin, end, pieces)
        highest = builder.fmul(_largest(builder, scored, tokens), spread(builder, scale))
        before = load(builder, top_at, number(0))
        grown = builder.fcmp_ordered(">", highest, builder.fadd(before, every(MARGIN)))
        top = builder.select(grown, highest, before)
        log2 = builder.fmul(builder.fsub(before, top), every(LOG2_E))
        factor = builder.select(grown, power(builder, log2), every(1.0))
        sums = Sums(builder, 2)
        sums.set(0, builder.fmul(load(builder, total_at, number(0)), factor))
        for vector, at in ((top, top_at), (factor, factor_at)):
            store(builder, vector, at, number(0))
        seen = builder.select(builder.fcmp_ordered(">", top, every(BEGINNING)), top, every(BEGINNING))
        slope = builder.fmul(spread(builder, scale), every(LOG2_E))
        offset = builder.fmul(seen, every(-LOG2_E))
        with cgutils.for_range_slice(builder, number(0), tokens, number(STEP), INDEX) as (token, step):
            at = builder.gep(scored, [builder.mul(token, number(EDGE))])
            _weights(
                builder, at, slope, offset, sums, builder.gep(out, [builder.mul(step, number(EDGE * EDGE))]), ahead
            )
        store(builder, builder.fadd(*sums.values()), total_at, number(0))
        had = builder.and_(grown, builder.fcmp_ordered(">", before, every(-np.inf)))
        return call(builder, f"llvm.vector.reduce.or.v{LANES}i1", ir.IntType(1), had)

    i, real = types.int64, types.float32
    return types.boolean(scores, i, i, real, tops, totals, factors, i, narrow, i, lines, i, i), generate


@instruction
def rescale_rows(typing: Any, sums: Any, first: Any, tiles: Any, factors: Any, row: Any) -> Any:
    """sums[first + tile, r, :] *= factors[row + r] for 16 x 16 tiles of the same 16 rows."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (sums, first, tiles, factors, row) = signature.args, arguments
        pointer = row_of(context, builder, kinds[0], sums, first)
        by = builder.gep(data(context, builder, kinds[3], factors), [row])
        each = [spread(builder, builder.load(builder.gep(by, [number(r)]))) for r in range(EDGE)]
        with cgutils.for_range(builder, tiles) as loop:
            tile = builder.gep(pointer, [builder.mul(loop.index, number(EDGE * EDGE))])
            for r, factor in enumerate(each):
                at = number(r * EDGE)
                store(builder, builder.fmul(load(builder, tile, at), factor), tile, at)
        return context.get_dummy_value()

    i = types.int64
    return types.none(sums, i, i, factors, i), generate


def _largest(builder: Builder, scored: Value, tokens: Value) -> Value:
    """The largest score of every row; NaN is passed over."""
    found = Sums(builder, PART)
    for index in range(PART):
        found.set(index, every(-np.inf))
    with cgutils.for_range_slice(builder, number(0), tokens, number(PART), INDEX) as (token, _):
        at = builder.mul(token, number(EDGE))
        for index, most in enumerate(found.values()):
            found.set(index, larger_lanes(builder, load(builder, scored, builder.add(at, number(index * EDGE))), most))
    a, b, c, d = found.values()
    return larger_lanes(builder, larger_lanes(builder, a, b), larger_lanes(builder, c, d))


def _weights(
    builder: Builder, scored: Value, slope: Value, offset: Value, sums: Sums, out: Value, ahead: Ahead
) -> None:
    """Weights of 32 tokens, added to two sums in turn; out [16 rows, 16 words]."""
    words = []
    for token in range(0, STEP, 2):
        pair = []
        for odd in (0, 1):
            score = load(builder, scored, number((token + odd) * EDGE))
            weight = power(builder, call(builder, FMA[VECTOR], VECTOR, score, slope, offset))
            sums.set(odd, builder.fadd(sums.values()[odd], weight))
            pair.append(builder.bitcast(weight, WORDS))
        words.append(_halved(builder, *pair))
        if token % PART == PART - 2:
            ahead.ask()
    for r, vector in enumerate(transposed(builder, words)):
        store(builder, vector, out, number(r * EDGE))


def _halved(builder: Builder, low: Value, high: Value) -> Value:
    """Two float32 rounded to bfloat16 in one word."""
    half, shift, upper = (ir.Constant(WORDS, [value] * LANES) for value in (0x8000, 16, 0xFFFF0000))
    low, high = (builder.add(bits, half) for bits in (low, high))
    return builder.or_(builder.lshr(low, shift), builder.and_(high, upper))


def transposed(builder: Builder, rows: list[Value]) -> list[Value]:
    """The 16 x 16 words of 16 vectors the other way round: blocks of 8, 4, 2, 1 change places."""
    for size in (8, 4, 2, 1):
        lanes = range(EDGE)
        low = [i if not i & size else EDGE + i - size for i in lanes]
        high = [i + size if not i & size else EDGE + i for i in lanes]
        for a in (i for i in lanes if not i & size):
            rows[a], rows[a + size] = (pick(builder, rows[a], rows[a + size], chosen) for chosen in (low, high))
    return rows
