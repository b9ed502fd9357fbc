"""An exponential of our own, a vector at a time: libm's is called once per number."""

import math

import numpy as np
from llvmlite import ir

from variants.backend.numba_split_kv.vectors import BITS, FMA, LANES, VECTOR, Builder, Value, call, every

LOG2_E = math.log2(math.e)
SMALLEST = -126.0  # 2^-126 is the smallest normal float32; slower denormal numbers would follow
WORDS = ir.VectorType(BITS, LANES)


def power(builder: Builder, t: Value) -> Value:
    """2^t for t <= 127, relative error below 1e-6; 0 below 2^-126; NaN for NaN.

    2^(k + f) with k the nearest integer: k goes into the exponent's bits, 2^f on [-1/2, 1/2] is a polynomial.
    """
    k = call(builder, f"llvm.rint.v{LANES}f32", VECTOR, t)
    f, result = builder.fsub(t, k), every(POLYNOMIAL[-1])
    for coefficient in POLYNOMIAL[-2::-1]:
        result = call(builder, FMA[VECTOR], VECTOR, result, f, every(coefficient))
    exponent = builder.shl(builder.fptosi(k, WORDS), ir.Constant(WORDS, [23] * LANES))
    result = builder.bitcast(builder.add(builder.bitcast(result, WORDS), exponent), VECTOR)
    return builder.select(builder.fcmp_unordered(">=", t, every(SMALLEST)), result, every(0.0))


def _fit() -> tuple[float, ...]:
    """2^f on [-1/2, 1/2] in powers of f, constant first: least squares on Chebyshev nodes, degree 5."""
    nodes = -np.cos(np.pi * (np.arange(64) + 0.5) / 64) / 2
    return tuple(np.polynomial.polynomial.polyfit(nodes, np.exp2(nodes), 5))


POLYNOMIAL = _fit()
