"""Codes to numbers: a block of a cache of codes is decoded into workspace, and read from there."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import overload

from variants.backend.numba_split_kv.vectors import (
    BITS,
    FLOAT,
    INDEX,
    LANES,
    VECTOR,
    Builder,
    Value,
    data,
    instruction,
    load_as,
    number,
    spread,
    store,
)

BYTE = ir.IntType(8)


def source(memory: Any, decoded: Any) -> Any:
    """Where numbers are read: ``memory``, or ``decoded`` if memory holds codes. Known when a kernel is compiled."""
    return memory


@overload(source, inline="always")
def _source(memory: Any, decoded: Any) -> Any:
    def as_it_lies(memory: Any, decoded: Any) -> Any:
        return memory

    def elsewhere(memory: Any, decoded: Any) -> Any:
        return decoded

    return elsewhere if memory.dtype == types.uint8 else as_it_lies


@instruction
def decode(
    typing: Any, memory: Any, at: Any, first: Any, tokens: Any, width: Any, scales: Any, scale_first: Any, block: Any,
    fp8: Any, out: Any, to: Any,
) -> Any:  # fmt: skip
    """out[to + t * width + c] = memory[at[first + t] + c] * scales[at[scale_first + t] + c // block]; places too.

    at[first + t] becomes to + t * width, where the numbers now lie. Nothing happens where memory holds no codes.
    """

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, first, tokens, width, scales, scale_first, block, fp8, out, to) = signature.args, arguments
        if kinds[0].dtype != types.uint8:
            return context.get_dummy_value()
        codes, places, factors, numbers = (
            data(context, builder, kinds[i], array) for i, array in ((0, memory), (1, at), (5, scales), (9, out))
        )
        with cgutils.for_range(builder, tokens) as loop:
            here, factor = (builder.gep(places, [builder.add(start, loop.index)]) for start in (first, scale_first))
            row, target = builder.load(here), builder.add(to, builder.mul(loop.index, width))
            with cgutils.for_range_slice(builder, number(0), width, block, INDEX) as (column, index):
                scale = builder.load(builder.gep(factors, [builder.add(builder.load(factor), index)]))
                left = builder.sub(width, column)
                some = builder.select(builder.icmp_signed("<", block, left), block, left)
                pointer, result = builder.gep(codes, [builder.add(row, column)]), builder.add(target, column)
                _decode_block(builder, pointer, some, scale, fp8, builder.gep(numbers, [result]))
            builder.store(target, here)
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, i, scales, i, i, types.boolean, out, i), generate


def _decode_block(builder: Builder, codes: Value, width: Value, scale: Value, fp8: Value, out: Value) -> None:
    """Codes that share a scale."""
    whole = builder.sub(width, builder.srem(width, number(LANES)))

    def run(number_of: Any) -> None:
        with cgutils.for_range_slice(builder, number(0), whole, number(LANES), INDEX) as (column, _):
            code = load_as(builder, ir.VectorType(BYTE, LANES), codes, column)
            store(builder, builder.fmul(number_of(builder, code, VECTOR), spread(builder, scale)), out, column)
        with cgutils.for_range_slice(builder, whole, width, number(1), INDEX) as (column, _):
            one = number_of(builder, builder.load(builder.gep(codes, [column])), FLOAT)
            builder.store(builder.fmul(one, scale), builder.gep(out, [column]))

    with builder.if_else(fp8) as (then, otherwise):
        with then:
            run(_of_e4m3)
        with otherwise:
            run(_of_int8)


def _of_int8(builder: Builder, code: Value, floats: Any) -> Value:
    return builder.sitofp(builder.sext(code, _integers(floats)), floats)


def _of_e4m3(builder: Builder, code: Value, floats: Any) -> Value:
    """Sign, four bits of exponent (bias 7), three of mantissa; 0x7F is NaN and there is no infinity.

    The exponent's and the mantissa's bits go where float32 has them, its bias 120 higher; below 2^-6 a number is its
    mantissa times 2^-9.
    """
    integers = _integers(floats)

    def constant(value: int) -> Value:
        return ir.Constant(integers, value if integers == BITS else [value] * LANES)

    def real(value: float) -> Value:
        return ir.Constant(floats, value if floats == FLOAT else [value] * LANES)

    bits = builder.zext(code, integers)
    magnitude = builder.and_(bits, constant(0x7F))
    normal = builder.bitcast(builder.add(builder.shl(magnitude, constant(20)), constant(120 << 23)), floats)
    small = builder.fmul(builder.uitofp(magnitude, floats), real(2.0**-9))
    absolute = builder.select(builder.icmp_unsigned("<", magnitude, constant(8)), small, normal)
    absolute = builder.select(builder.icmp_unsigned("==", magnitude, constant(0x7F)), real(float("nan")), absolute)
    sign = builder.shl(builder.and_(bits, constant(0x80)), constant(24))
    return builder.bitcast(builder.or_(builder.bitcast(absolute, integers), sign), floats)


def _integers(floats: Any) -> Any:
    return BITS if floats == FLOAT else ir.VectorType(BITS, LANES)
