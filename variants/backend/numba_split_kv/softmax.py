"""Scores to weights, a vector at a time, with an exponential of our own: libm's is called once per number."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.vectors import (
    BITS,
    FLOAT,
    INDEX,
    LANES,
    VECTOR,
    Builder,
    Sums,
    Value,
    call,
    every,
    instruction,
    load,
    number,
    row_of,
    spread,
    store,
)

LEAST = -87.0  # e^-87 is the smallest that is a normal float32; slower denormal numbers would follow
LOG2_E = 1.4426950408889634


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
            found.set(0, _larger(builder, score, found.values()[0]))
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
            power = _exp(builder, builder.fsub(load(builder, pointer, token), top))
            weight = builder.select(seen, power, every(0.0))
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


def _exp(builder: Builder, x: Value) -> Value:
    """e^x for x <= 0, relative error below 1e-6; e^-87 below that; NaN for NaN.

    2^(k + f) with k = floor(x log2 e): k goes into the exponent's bits, 2^f on [0, 1) is a polynomial.
    """
    integers = ir.VectorType(BITS, LANES)
    small = builder.fcmp_ordered("<", x, every(LEAST))  # not so for NaN, which must show
    t = builder.fmul(builder.select(small, every(LEAST), x), every(LOG2_E))
    k = call(builder, f"llvm.floor.v{LANES}f32", VECTOR, t)
    f, power = builder.fsub(t, k), every(POLYNOMIAL[-1])
    for coefficient in POLYNOMIAL[-2::-1]:
        power = call(builder, f"llvm.fma.v{LANES}f32", VECTOR, power, f, every(coefficient))
    biased = builder.add(builder.fptosi(k, integers), ir.Constant(integers, [127] * LANES))
    exponent = builder.shl(biased, ir.Constant(integers, [23] * LANES))
    return builder.fmul(builder.bitcast(exponent, VECTOR), power)


def _larger(builder: Builder, a: Value, b: Value) -> Value:
    """The larger of each lane; b where a is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _spread_index(builder: Builder, index: Value) -> Value:
    kind = ir.VectorType(BITS, LANES)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), builder.trunc(index, BITS), ir.Constant(BITS, 0))
    return builder.shuffle_vector(one, one, ir.Constant(kind, [0] * LANES))


def _fit() -> tuple[float, ...]:
    """2^f on [0, 1) in powers of f, constant first: least squares on Chebyshev nodes, degree 6."""
    nodes = (1 - np.cos(np.pi * (np.arange(64) + 0.5) / 64)) / 2
    return tuple(np.polynomial.polynomial.polyfit(nodes, np.exp2(nodes), 6))


POLYNOMIAL = _fit()
