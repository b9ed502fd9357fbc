"""Device code that the kernels are made of: which tokens there are, a product, writing a result."""

# ruff: noqa: ANN001, ANN201 - triton compiles these functions: it reads tl.constexpr annotations and knows no others

from typing import no_type_check

import triton
import triton.language as tl

LN2 = tl.constexpr(0.6931471805599453)


# no_type_check: an import hook that checks shapes, as the tests have, would wrap the function and hide its source
@triton.jit
@no_type_check
def token_range(LENGTHS, START, b, QUERIES: tl.constexpr, WINDOW: tl.constexpr, RING: tl.constexpr):
    """[oldest, length): the tokens of sequence b that any of its queries may see."""
    length = tl.load(LENGTHS + b)
    oldest = length * 0
    if WINDOW > 0:
        oldest = tl.maximum(length - QUERIES + 1 - WINDOW, 0)
    if RING > 0:
        oldest = tl.maximum(oldest, tl.load(START + b))
    return oldest, length


@triton.jit
@no_type_check
def dot(a, b, acc, UPCAST: tl.constexpr):
    """a @ b + acc in float32. UPCAST: the interpreter would multiply the bits of bfloat16 (triton issue 11584)."""
    if UPCAST:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    # tf32x3 concerns float32 operands only: float32's accuracy on the tensor cores, which "ieee" would not use
    return tl.dot(a, b, acc, input_precision="tf32x3")


@triton.jit
@no_type_check
def store(
    OUT,
    LSE,
    out,
    lse,
    b,
    kv_head,
    first_row,
    splits,
    s,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    QUERIES: tl.constexpr,
    VALUE_AT: tl.constexpr,
    VALUE_W: tl.constexpr,
):
    """Write the value columns of out [M, VALUE_BLOCK] and lse [M] to split s of their rows in [B, Q, H, splits]."""
    row = first_row + tl.arange(0, out.shape[0])
    at = ((b.to(tl.int64) * QUERIES + row % QUERIES) * HEADS + kv_head * GROUP + row // QUERIES) * splits + s
    real = row < GROUP * QUERIES
    col = tl.arange(0, out.shape[1]) - VALUE_AT
    wanted = real[:, None] & (col >= 0)[None, :] & (col < VALUE_W)[None, :]
    tl.store(OUT + at[:, None] * VALUE_W + col[None, :], out.to(OUT.dtype.element_ty), mask=wanted)
    tl.store(LSE + at, lse, mask=real)
