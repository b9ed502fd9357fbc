"""Scalars that numba does not have: bfloat16 in uint16, and an exponential that vectorises."""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic, overload

# All of fastmath but nnan and ninf: minus infinity is how a row that has seen nothing is told.
FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}


@intrinsic
def float_of_bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with these 32 bits; callers give ``bits`` alone, the context is numba's."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.uint32), codegen


def widen(x: Any) -> Any:
    """A cached element as float32: uint16 holds bfloat16."""
    return x


# numba wants an implementation's signature to equal its typing's, annotations included
@overload(widen, inline="always")
def _widen(x: Any) -> Any:
    def as_is(x: Any) -> Any:
        return x

    def shifted(x: Any) -> Any:
        return float_of_bits(np.uint32(x) << np.uint32(16))  # type: ignore[call-arg]

    return shifted if x == types.uint16 else as_is


@njit(fastmath=FAST, inline="always")
def exp_(x: np.float32) -> np.float32:
    """e^x for x <= 0 in float32, relative error below 2e-7 x 4; 2^-126 below -87.

    2^(k + f) with k = floor(x log2 e): k goes into the exponent bits, 2^f on [0, 1) is a polynomial of degree 6
    (least-squares on Chebyshev nodes). Branch-free, so that LLVM turns a loop of it into vectors; libm's exp does not.
    """
    t = max(x, np.float32(-87.0)) * np.float32(1.4426950408889634)
    k = np.float32(math.floor(t))
    f = t - k
    p = np.float32(POLYNOMIAL[6])
    p = p * f + np.float32(POLYNOMIAL[5])
    p = p * f + np.float32(POLYNOMIAL[4])
    p = p * f + np.float32(POLYNOMIAL[3])
    p = p * f + np.float32(POLYNOMIAL[2])
    p = p * f + np.float32(POLYNOMIAL[1])
    p = p * f + np.float32(POLYNOMIAL[0])
    return float_of_bits(np.uint32((np.int32(k) + np.int32(127)) << np.int32(23))) * p  # type: ignore[call-arg]


def _fit() -> tuple[float, ...]:
    """Coefficients of 2^f on [0, 1), constant first."""
    nodes = (1 - np.cos(np.pi * (np.arange(64) + 0.5) / 64)) / 2
    return tuple(np.polynomial.polynomial.polyfit(nodes, np.exp2(nodes), 6))


POLYNOMIAL = _fit()
