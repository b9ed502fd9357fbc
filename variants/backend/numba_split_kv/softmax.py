"""Scores to weights, a vector at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.exponential import LOG2_E, power
from variants.backend.numba_split_kv.vectors import (
    BITS,
    FLOAT,
    INDEX,
    LANES,
    Builder,
    Sums,
    Value,
    call,
    every,
    instruction,
    larger_lanes,
    load,
    number,
    row_of,
    spread,
    store,
)


@instruction
def largest(typing: Any, scores: Any, row: Any, begin: Any, stop: Any, tokens: Any, scale: Any, most: Any) -> Any:
    """Scale scores[row, begin:stop], set the rest up to ``tokens`` to -inf; returns the largest, at least ``most``."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        scores, row, begin, stop, tokens, scale, most = arguments
        pointer, factor = row_of(context, builder, signature.args[0], scores, row), spread(builder, scale)
        found = Sums(builder, 1)
        found.set(0, spread(builder, most))
        with _vectors(builder, tokens, begin, stop) as (token, seen):
            score = builder.select(seen, builder.fmul(load(builder, pointer, token), factor), every(-np.inf))
            store(builder, score, pointer, token)
            found.set(0, larger_lanes(builder, score, found.values()[0]))
        return call(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", FLOAT, found.values()[0])

    integer, real = types.int64, types.float32
    return real(scores, integer, integer, integer, integer, real, real), generate


@instruction
def exponentials(typing: Any, scores: Any, row: Any, begin: Any, stop: Any, tokens: Any, most: Any) -> Any:
    """scores[row, begin:stop] = e^(scores - most), the rest up to ``tokens`` 0; returns their sum. most is finite."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        scores, row, begin, stop, tokens, most = arguments
        pointer, top = row_of(context, builder, signature.args[0], scores, row), spread(builder, most)
        sums = Sums(builder, 1)
        with _vectors(builder, tokens, begin, stop) as (token, seen):
            below = builder.fsub(load(builder, pointer, token), top)
            weight = builder.select(seen, power(builder, builder.fmul(below, every(LOG2_E))), every(0.0))
            store(builder, weight, pointer, token)
            sums.add(0, weight, every(1.0))
        start = ir.Constant(FLOAT, 0.0)
        return call(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", FLOAT, start, sums.values()[0], fast=True)

    integer, real = types.int64, types.float32
    return real(scores, integer, integer, integer, integer, real), generate


@contextmanager
def _vectors(builder: Builder, tokens: Value, begin: Value, stop: Value) -> Iterator[tuple[Value, Value]]:
    """A loop over whole vectors of tokens, and which lanes lie in [begin, stop)."""
    lanes = ir.Constant(ir.VectorType(BITS, LANES), list(range(LANES)))
    with cgutils.for_range_slice(builder, number(0), tokens, number(LANES), INDEX) as (token, _):
        first, last = (_spread_index(builder, builder.sub(bound, token)) for bound in (begin, stop))
        seen = builder.and_(builder.icmp_signed(">=", lanes, first), builder.icmp_signed("<", lanes, last))
        yield token, seen


def _spread_index(builder: Builder, index: Value) -> Value:
    kind = ir.VectorType(BITS, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(index, BITS), ir.Constant(BITS, 0))
    return builder.shuffle_vector(one, one, ir.Constant(kind, [0] * LANES))
