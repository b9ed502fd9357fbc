"""Products of bfloat16 on a CPU's matrix unit (Intel AMX), for groups of many query heads.

A tile register holds 16 rows of 64 bytes. C [16 x 16] float32 += A [16 x 32] x B [32 x 16], where B's rows come in
pairs: B[k / 2] holds k and k + 1 of every column side by side (Intel SDM volume 2, TDPBF16PS). Keys are A as they lie
in the cache, queries B, so scores come out as [tokens, rows]; weights are A, values B. Up to 32 rows of queries go
together, so that what is loaded of keys and values serves two products.
"""

import ctypes
import platform
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.ahead import Ahead
from variants.backend.numba_split_kv.columns import EDGE, STEP, transposed
from variants.backend.numba_split_kv.operands import Array
from variants.backend.numba_split_kv.vectors import (
    BITS,
    INDEX,
    LANES,
    LINE,
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

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
HALVES = ir.VectorType(ir.IntType(16), STEP)
WORDS = EDGE * EDGE  # of 32 bits in a tile
C, A, B = (0, 1, 2, 3), (4, 5), (6, 7)  # tile registers
# Lanes of two vectors of 32 columns, woven within 128 bits; and of their products, in the columns' order.
WOVEN = [[lane + i + odd for lane in range(half, STEP, 8) for i in range(4) for odd in (0, STEP)] for half in (0, 4)]
ORDER = [[EDGE * half + lane + i for lane in (a, a + 4) for half in (0, 1) for i in range(4)] for a in (0, 8)]


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
def pack(typing: Any, q: Any, at: Any, first: Any, steps: Any, packed: Any, tile: Any) -> Any:
    """packed[tile] = 16 rows of q, as the unit takes its second operand: [K / 32, 16 pairs of columns, 16 rows].

    Row r begins at q[at[first + r]]; two bfloat16 make a word.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (q, at, first, steps, packed, tile) = signature.args, arguments
        queries, places = (data(context, builder, kinds[i], array) for i, array in ((0, q), (1, at)))
        out, words = row_of(context, builder, kinds[4], packed, tile), ir.VectorType(BITS, LANES)
        rows = [builder.load(builder.gep(places, [builder.add(first, number(r))])) for r in range(EDGE)]
        with cgutils.for_range(builder, steps) as loop:
            column = builder.mul(loop.index, number(STEP))
            halves = [load_as(builder, HALVES, queries, builder.add(row, column)) for row in rows]
            pairs = transposed(builder, [builder.bitcast(two, words) for two in halves])
            for i, pair in enumerate(pairs):
                store(builder, pair, out, builder.add(builder.mul(loop.index, number(WORDS)), number(i * EDGE)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, at, i, i, packed, i), generate


@instruction
def gather(typing: Any, memory: Any, at: Any, first: Any, width: Any, out: Any, to: Any) -> Any:
    """Copy 32 rows together: out[to + t * width:.. + width] = memory[at[first + t]:..]; width in whole steps."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, first, width, out, to) = signature.args, arguments
        rows, places, copies = (data(context, builder, kinds[i], a) for i, a in ((0, memory), (1, at), (4, out)))
        with cgutils.for_range(builder, number(STEP)) as loop:
            begin = builder.load(builder.gep(places, [builder.add(first, loop.index)]))
            end = builder.add(to, builder.mul(loop.index, width))
            with cgutils.for_range_slice(builder, number(0), width, number(STEP), INDEX) as (column, _):
                some = load_as(builder, HALVES, rows, builder.add(begin, column))
                store(builder, some, copies, builder.add(end, column))
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, out, i), generate


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
            _open(builder, sums[: 2 * count], fresh)
            with cgutils.for_range(builder, steps) as loop:
                columns = builder.mul(loop.index, number(STEP))
                for register, key in zip(A, keys, strict=True):
                    _load(builder, register, builder.gep(key, [columns]), bytes_apart)
                for i, query in enumerate(queries[:count]):
                    _load(builder, B[i], builder.gep(query, [builder.mul(loop.index, number(WORDS))]), number(LINE))
                    for half in (0, 1):
                        _multiply(builder, C[2 * i + half], A[half], B[i])
                ahead.ask()
            _close(builder, sums[: 2 * count])

        _once_or_twice(builder, two, score)
        return context.get_dummy_value()

    i = types.int64
    return types.none(q, i, types.boolean, i, i, memory, i, i, s, i, i, lines, i, i), generate


@instruction
def weave(typing: Any, memory: Any, at: Any, first: Any, steps: Any, column: Any, woven: Any, row: Any) -> Any:
    """Values of two tokens at a time side by side: 32 columns from ``column`` on, in two tiles for every 32 tokens.

    woven[row + 2 * step + half, pair] holds memory[at[first + 32 * step + 2 * pair + (0, 1)] + column:..]: of every
    eight columns the first four in half 0 and the others in half 1, since words are woven within 128 bits; ``unravel``
    puts them in order at the end.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, first, steps, column, woven, row) = signature.args, arguments
        values = builder.gep(data(context, builder, kinds[0], memory), [column])
        places = builder.gep(data(context, builder, kinds[1], at), [first])
        out = row_of(context, builder, kinds[5], woven, row)
        with cgutils.for_range(builder, steps) as loop:
            token, tile = builder.mul(loop.index, number(STEP)), builder.mul(loop.index, number(2 * WORDS))
            with cgutils.for_range(builder, number(EDGE)) as inner:
                even = builder.gep(places, [builder.add(token, builder.mul(inner.index, number(2)))])
                begins = [builder.load(builder.gep(even, [number(odd)])) for odd in (0, 1)]
                two = [load_as(builder, HALVES, values, begin) for begin in begins]
                to = builder.add(tile, builder.mul(inner.index, number(EDGE)))
                for half, lanes in enumerate(WOVEN):
                    mixed = builder.bitcast(pick(builder, two[0], two[1], lanes), ir.VectorType(BITS, LANES))
                    store(builder, mixed, out, builder.add(to, number(half * WORDS)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, i, woven, i), generate


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
            _open(builder, sums[: 2 * count], fresh)
            with cgutils.for_range(builder, steps) as loop:
                tile = builder.mul(loop.index, number(WORDS))
                for half in (0, 1):
                    at = builder.add(builder.mul(tile, number(2)), number(half * WORDS))
                    _load(builder, B[half], builder.gep(values, [at]), number(LINE))
                for i, pointer in enumerate(rows[:count]):
                    _load(builder, A[i], builder.gep(pointer, [tile]), number(LINE))
                    for half in (0, 1):
                        _multiply(builder, C[2 * i + half], A[i], B[half])
            _close(builder, sums[: 2 * count])

        _once_or_twice(builder, two, weigh)
        return context.get_dummy_value()

    i, b = types.int64, types.boolean
    return types.none(weights, i, i, b, i, woven, i, sums, i, i, b), generate


@instruction
def unravel(typing: Any, tiles: Any, first: Any, sums: Any, out: Any) -> Any:
    """sums[out:.. + 16, :] = tiles[first:], with columns in the order that they had before ``weave``."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (tiles, first, sums, out) = signature.args, arguments
        read, written = (
            row_of(context, builder, kinds[i], a, row) for i, a, row in ((0, tiles, first), (2, sums, out))
        )
        width = _columns(context, builder, kinds[2], sums)
        with cgutils.for_range_slice(builder, number(0), width, number(STEP), INDEX) as (column, _):
            tile = builder.gep(read, [builder.mul(column, number(EDGE))])
            for r in range(EDGE):
                two = [load(builder, tile, number(half * WORDS + r * EDGE)) for half in (0, 1)]
                at = builder.add(builder.mul(width, number(r)), column)
                for half, lanes in enumerate(ORDER):
                    store(builder, pick(builder, two[0], two[1], lanes), written, builder.add(at, number(half * EDGE)))
        return context.get_dummy_value()

    i = types.int64
    return types.none(tiles, i, sums, i), generate


def _columns(context: Any, builder: Builder, kind: Any, array: Value) -> Value:
    """Columns of an array [rows, columns]."""
    return cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, value=array).shape, 2)[1]


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


def _open(builder: Builder, sums: list[Value], fresh: Value) -> None:
    """Sums into their registers, or zeros."""
    with builder.if_else(fresh) as (then, otherwise):
        with then:
            for register in C[: len(sums)]:
                _unit(builder, "tilezero", _tile(register))
        with otherwise:
            for register, at in zip(C, sums, strict=False):
                _load(builder, register, at, number(LINE))


def _close(builder: Builder, sums: list[Value]) -> None:
    """Sums back to memory."""
    for register, at in zip(C, sums, strict=False):
        _unit(builder, "tilestored64", _tile(register), _bytes(builder, at), number(LINE))


def _bytes(builder: Builder, pointer: Value) -> Value:
    return builder.bitcast(pointer, ir.IntType(8).as_pointer())


def _unit(builder: Builder, name: str, *arguments: Value) -> None:
    call(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)


def _tile(register: int) -> Value:
    return ir.Constant(ir.IntType(8), register)


def _load(builder: Builder, register: int, pointer: Value, bytes_apart: Value) -> None:
    _unit(builder, "tileloadd64", _tile(register), _bytes(builder, pointer), bytes_apart)


def _multiply(builder: Builder, c: int, a: int, b: int) -> None:
    _unit(builder, "tdpbf16ps", _tile(c), _tile(a), _tile(b))
