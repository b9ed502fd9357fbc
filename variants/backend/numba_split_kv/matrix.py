"""Products of bfloat16 on a CPU's matrix unit (Intel AMX), for groups of many query heads.

A tile register holds 16 rows of 64 bytes. C [16 x 16] float32 += A [16 x 32] x B [32 x 16], where B's rows come in
pairs: B[k / 2] holds k and k + 1 of every column side by side (Intel SDM volume 2, TDPBF16PS). Keys are A as they lie
in the cache, queries B, so scores come out as [tokens, rows] and are turned round afterwards; weights are A, values B.
"""

import ctypes
import platform
import sys
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.operands import Array
from variants.backend.numba_split_kv.vectors import (
    BITS,
    INDEX,
    LANES,
    Builder,
    Value,
    call,
    data,
    instruction,
    load,
    load_as,
    number,
    pick,
    row_of,
    store,
)

EDGE = 16  # rows of a tile, and columns of a product
STEP = 32  # bfloat16 that one product sums over
ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
C0, C1, A0, A1, B0 = range(5)  # tile registers


@cache
def ready() -> bool:
    """Whether this CPU has the unit and Linux lets this process use it; asks for that once."""
    features = llvmlite.binding.get_host_cpu_features()
    if not (features.get("amx-bf16") and features.get("amx-tile") and LANES == EDGE):
        return False
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0)


def configuration() -> Array:
    """What LDTILECFG loads: palette 1, every tile 16 rows of 64 bytes."""
    config = np.zeros(64, np.uint8)
    config[0] = 1
    config[16:32].view(np.uint16)[:] = 64
    config[48:56] = EDGE
    return config


@instruction
def configure(typing: Any, config: Any) -> Any:
    """Shape the tile registers of this thread; ``release`` gives them back."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        _unit(builder, "ldtilecfg", _bytes(builder, data(context, builder, signature.args[0], arguments[0])))
        return context.get_dummy_value()

    return types.none(config), generate


@instruction
def release(typing: Any) -> Any:
    """Leave the unit idle: a dirty one slows the thread's context switches."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        _unit(builder, "tilerelease")
        return context.get_dummy_value()

    return types.none(), generate


@instruction
def score_tokens(
    typing: Any, q: Any, tile: Any, step: Any, steps: Any, memory: Any, place: Any, stride: Any, s: Any, s_row: Any
) -> Any:
    """s[s_row + t, :16] += keys of 32 tokens at memory[place + t * stride] x tile [step, step + steps) of q."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (q, tile, step, steps, memory, place, stride, s, s_row) = signature.args, arguments
        first = builder.mul(step, number(EDGE * STEP))
        b = builder.gep(row_of(context, builder, kinds[0], q, tile), [first])
        a = builder.gep(data(context, builder, kinds[4], memory), [place])
        bytes_apart = builder.mul(stride, number(2))
        sums = _halves(builder, row_of(context, builder, kinds[7], s, s_row), number(EDGE))
        for register, at in zip((C0, C1), sums, strict=True):
            _load(builder, register, at, number(4 * EDGE))
        with cgutils.for_range(builder, steps) as loop:
            columns = builder.gep(a, [builder.mul(loop.index, number(STEP))])
            for register, at in zip((A0, A1), _halves(builder, columns, stride), strict=True):
                _load(builder, register, at, bytes_apart)
            _load(builder, B0, builder.gep(b, [builder.mul(loop.index, number(EDGE * STEP))]), number(2 * STEP))
            _multiply(builder, C0, A0, B0)
            _multiply(builder, C1, A1, B0)
        for register, at in zip((C0, C1), sums, strict=True):
            _store(builder, register, at, number(4 * EDGE))
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, i, i, i, memory, i, i, s, i), generate


@instruction
def turn(typing: Any, s: Any, s_row: Any, weights: Any, row: Any, token: Any) -> Any:
    """weights[row + r, token + t] = s[s_row + t, r] for 16 rows and 32 tokens."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (s, s_row, weights, row, token) = signature.args, arguments
        scored = row_of(context, builder, kinds[0], s, s_row)
        out = [row_of(context, builder, kinds[2], weights, builder.add(row, number(r))) for r in range(EDGE)]
        for half in (0, EDGE):
            tokens = [load(builder, scored, number((half + t) * EDGE)) for t in range(EDGE)]
            for pointer, turned in zip(out, _transposed(builder, tokens), strict=True):
                store(builder, turned, pointer, builder.add(token, number(half)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(s, i, weights, i, i), generate


@instruction
def weigh_tokens(
    typing: Any, weights: Any, row: Any, steps: Any, values: Any, v_row: Any, column: Any, sums: Any, out: Any
) -> Any:
    """sums[out + r, column:column + 32] += weights[row + r] x values[v_row + tokens / 2, column, 2], for 16 rows."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (weights, row, steps, values, v_row, column, sums, out) = signature.args, arguments
        a, b, c = (
            row_of(context, builder, kinds[i], array, first)
            for i, array, first in ((0, weights, row), (3, values, v_row), (6, sums, out))
        )
        tokens, width = (_columns(context, builder, kinds[i], array) for i, array in ((0, weights), (3, values)))
        totals = [builder.gep(c, [builder.add(column, number(i))]) for i in (0, EDGE)]
        row_bytes = builder.mul(width, number(4))  # of two bfloat16, and of one float32
        for register, at in zip((C0, C1), totals, strict=True):
            _load(builder, register, at, row_bytes)
        with cgutils.for_range(builder, steps) as loop:
            some = builder.gep(a, [builder.mul(loop.index, number(STEP))])
            _load(builder, A0, some, builder.mul(tokens, number(2)))
            pairs = builder.gep(b, [builder.add(builder.mul(builder.mul(loop.index, number(EDGE)), width), column)])
            for register, total, i in ((A1, C0, 0), (B0, C1, EDGE)):
                _load(builder, register, builder.gep(pairs, [number(i)]), row_bytes)
                _multiply(builder, total, A0, register)
        for register, at in zip((C0, C1), totals, strict=True):
            _store(builder, register, at, row_bytes)
        return context.get_dummy_value()

    i = types.int64
    return types.none(weights, i, i, values, i, i, sums, i), generate


@instruction
def halve(typing: Any, weights: Any, row: Any, tokens: Any, narrow: Any) -> Any:
    """narrow[row, :tokens] = weights[row, :tokens] as bfloat16, rounded to nearest even; tokens in whole vectors."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (weights, row, tokens, narrow) = signature.args, arguments
        wide, out = (row_of(context, builder, kinds[i], array, row) for i, array in ((0, weights), (3, narrow)))
        integers = ir.VectorType(BITS, LANES)
        shift, one, half = (ir.Constant(integers, [value] * LANES) for value in (16, 1, 0x7FFF))
        with cgutils.for_range_slice(builder, number(0), tokens, number(LANES), INDEX) as (token, _):
            bits = builder.bitcast(load(builder, wide, token), integers)
            odd = builder.and_(builder.lshr(bits, shift), one)
            rounded = builder.lshr(builder.add(bits, builder.add(half, odd)), shift)
            store(builder, builder.trunc(rounded, ir.VectorType(ir.IntType(16), LANES)), out, token)
        return context.get_dummy_value()

    return types.none(weights, types.int64, types.int64, narrow), generate


@instruction
def weave(typing: Any, memory: Any, even: Any, odd: Any, width: Any, pairs: Any, row: Any) -> Any:
    """pairs[row, c] = (memory[even + c], memory[odd + c]), the latter in the upper half; width in whole vectors."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, even, odd, width, pairs, row) = signature.args, arguments
        values, out = data(context, builder, kinds[0], memory), row_of(context, builder, kinds[4], pairs, row)
        halves, words = ir.VectorType(ir.IntType(16), LANES), ir.VectorType(BITS, LANES)
        with cgutils.for_range_slice(builder, number(0), width, number(LANES), INDEX) as (column, _):
            low, high = (
                builder.zext(load_as(builder, halves, values, builder.add(place, column)), words)
                for place in (even, odd)
            )
            upper = builder.shl(high, ir.Constant(words, [16] * LANES))
            store(builder, builder.or_(low, upper), out, column)
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, i, i, i, pairs, i), generate


def _columns(context: Any, builder: Builder, kind: Any, array: Value) -> Value:
    """Columns of an array [rows, columns]."""
    return cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, value=array).shape, 2)[1]


def _halves(builder: Builder, pointer: Value, stride: Value) -> list[Value]:
    """Where the first and the second 16 of 32 rows begin."""
    return [pointer, builder.gep(pointer, [builder.mul(stride, number(EDGE))])]


def _transposed(builder: Builder, rows: list[Value]) -> list[Value]:
    """The 16 x 16 floats of 16 vectors the other way round: blocks of 8, 4, 2, 1 change places."""
    for size in (8, 4, 2, 1):
        lanes = range(EDGE)
        low = [i if not i & size else EDGE + i - size for i in lanes]
        high = [i + size if not i & size else EDGE + i for i in lanes]
        for a in (i for i in lanes if not i & size):
            rows[a], rows[a + size] = (pick(builder, rows[a], rows[a + size], chosen) for chosen in (low, high))
    return rows


def _bytes(builder: Builder, pointer: Value) -> Value:
    return builder.bitcast(pointer, ir.IntType(8).as_pointer())


def _unit(builder: Builder, name: str, *arguments: Value) -> None:
    call(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)


def _tile(register: int) -> Value:
    return ir.Constant(ir.IntType(8), register)


def _load(builder: Builder, register: int, pointer: Value, bytes_apart: Value) -> None:
    _unit(builder, "tileloadd64", _tile(register), _bytes(builder, pointer), bytes_apart)


def _store(builder: Builder, register: int, pointer: Value, bytes_apart: Value) -> None:
    _unit(builder, "tilestored64", _tile(register), _bytes(builder, pointer), bytes_apart)


def _multiply(builder: Builder, c: int, a: int, b: int) -> None:
    _unit(builder, "tdpbf16ps", _tile(c), _tile(a), _tile(b))
