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
def row_tiles(
    row,
    held,
    true,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    DTYPE: tl.constexpr,
    ONCE: tl.constexpr,
):
    """WIDTH columns of the rows [N] as TILES tiles [N, BLOCK] of DTYPE; zeros beyond, and where not held.

    ONCE: decode as loaded, see ``tiles.Tile``, by a condition that is always true but out of the compiler's sight.
    """
    tiles = ()
    for i in tl.static_range(TILES):
        col = i * BLOCK + tl.arange(0, BLOCK)
        here = held[:, None] & (col < WIDTH)[None, :] if (i + 1) * BLOCK > WIDTH else held[:, None]
        tile = tl.load(row[:, None] + col[None, :], mask=here, other=0)
        if ONCE and tile.dtype.primitive_bitwidth == 8:
            decoded = tl.zeros(tile.shape, DTYPE)
            if true:
                decoded = number(tile, DTYPE)
            tiles += (decoded,)
        else:
            tiles += (number(tile, DTYPE),)
    return tiles


@triton.jit
@no_type_check
def row_scales(row, held, AT: tl.constexpr, TILES: tl.constexpr):
    """The scale [N] of each tile, from AT bytes behind its row on; 0 where not held, nothing where AT is 0."""
    scales = ()
    if AT != 0:
        first = (row + AT).to(tl.pointer_type(tl.float32))
        for i in tl.static_range(TILES):
            scales += (tl.load(first + i, mask=held, other=0.0),)
    return scales


@triton.jit
@no_type_check
def number(x, DTYPE: tl.constexpr):
    """x as DTYPE: numbers, int8 codes, or e4m3 codes by their bits, for cards that have no such type.

    An e4m3 has four bits of exponent (bias 7) and three of mantissa. Moved to where float32 has its own (bias 127) they
    are the number times 2^-120, subnormal ones too. Every code is exact in bfloat16. 0x7F, NaN, becomes 480: what has
    been encoded from a NaN has a scale that is NaN.
    """
    if x.dtype == tl.uint8:
        bits = x.to(tl.uint32)
        x = (((bits & 0x80) << 24) | ((bits & 0x7F) << 20)).to(tl.float32, bitcast=True) * 2.0**120
    elif x.dtype == tl.int8:
        x = x.to(tl.float32)
    return x.to(DTYPE)


@triton.jit
@no_type_check
def scaled(x, scales, i: tl.constexpr):
    """x [M, N] times the scale of each token in tile i, if there are scales."""
    return x * scales[i][None, :] if len(scales) else x


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
    """Write the value columns of out, tiles [M, VALUE_BLOCK], and lse [M] to split s of rows in [B, Q, H, splits]."""
    row = first_row + tl.arange(0, lse.shape[0])
    at = ((b.to(tl.int64) * QUERIES + row % QUERIES) * HEADS + kv_head * GROUP + row // QUERIES) * splits + s
    real = row < GROUP * QUERIES
    for i in tl.static_range(len(out)):
        col = i * out[i].shape[1] + tl.arange(0, out[i].shape[1]) - VALUE_AT
        wanted = real[:, None] & (col >= 0)[None, :] & (col < VALUE_W)[None, :]
        tl.store(OUT + at[:, None] * VALUE_W + col[None, :], out[i].to(OUT.dtype.element_ty), mask=wanted)
    tl.store(LSE + at, lse, mask=real)
