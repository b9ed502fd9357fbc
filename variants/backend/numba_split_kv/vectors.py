"""Vectors of floats in LLVM's own terms: what numba's loops cannot say, such as sums that stay in registers.

Everything here writes instructions into a builder: pointers count in elements, and a bfloat16 (uint16) is widened to
float32 where it is loaded.
"""

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import njit
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 8
BITS, INDEX, FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)
LINE = 64  # bytes of a cache line
FMA = {VECTOR: f"llvm.fma.v{LANES}f32", FLOAT: "llvm.fma.f32"}
FEW = (4, 2, 1)  # rows that a tile may have
# A function of kernels that writes its own instructions; callers give all arguments but the first, numba's context.
instruction: Callable[[Callable[..., Any]], Any] = intrinsic
Builder = Any  # llvmlite has no types of its own
Value = Any


def number(value: int) -> Value:
    """An index."""
    return ir.Constant(INDEX, value)


def smaller(builder: Builder, a: Value, b: Value) -> Value:
    """The smaller of two indices."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def larger(builder: Builder, a: Value, b: Value) -> Value:
    """The larger of two indices."""
    return builder.select(builder.icmp_signed(">", a, b), a, b)


def larger_lanes(builder: Builder, a: Value, b: Value) -> Value:
    """The larger float of each lane; b where a is NaN."""
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def every(value: float) -> Value:
    """A constant in every lane, rounded to float32 as LLVM wants its constants."""
    return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)


def call(builder: Builder, name: str, result: Any, *arguments: Value, fast: bool = False) -> Value:
    """One of LLVM's own functions, by its full name; ``fast``: sums in any order."""
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, arguments, fastmath=("reassoc",) if fast else ())


def data(context: Any, builder: Builder, array_type: Any, array: Value) -> Value:
    """Pointer to an array's first element."""
    return context.make_array(array_type)(context, builder, value=array).data


def row_of(context: Any, builder: Builder, array_type: Any, array: Value, row: Value) -> Value:
    """Pointer to a row of a C-contiguous array [rows, columns]."""
    made = context.make_array(array_type)(context, builder, value=array)
    columns = cgutils.unpack_tuple(builder, made.shape, 2)[1]
    return builder.gep(made.data, [builder.mul(row, columns)])


def rows_of(context: Any, builder: Builder, array_type: Any, array: Value, first: Value, count: int) -> list[Value]:
    """Pointers to some rows of a C-contiguous array."""
    return [row_of(context, builder, array_type, array, builder.add(first, number(r))) for r in range(count)]


@njit(inline="always")
def few(left: int) -> int:
    """Rows of the next tile when so many are left."""
    return 4 if left >= 4 else 2 if left >= 2 else 1


def load(builder: Builder, pointer: Value, index: Value) -> Value:
    """LANES elements from ``index`` on, as float32."""
    element = pointer.type.pointee
    lanes = load_as(builder, ir.VectorType(element, LANES), pointer, index)
    return lanes if element == FLOAT else widen(builder, lanes, ir.VectorType(BITS, LANES), VECTOR)


def load_as(builder: Builder, kind: Any, pointer: Value, index: Value) -> Value:
    """A vector of elements as they are."""
    at = builder.bitcast(builder.gep(pointer, [index]), kind.as_pointer())
    return builder.load(at, align=element_bytes(pointer.type.pointee))


def load_one(builder: Builder, pointer: Value, index: Value) -> Value:
    """One element as float32."""
    element = builder.load(builder.gep(pointer, [index]))
    return element if element.type == FLOAT else widen(builder, element, BITS, FLOAT)


def store(builder: Builder, vector: Value, pointer: Value, index: Value) -> None:
    """Write all lanes from ``index`` on."""
    at = builder.gep(pointer, [index])
    builder.store(vector, builder.bitcast(at, vector.type.as_pointer()), align=element_bytes(pointer.type.pointee))


def widen(builder: Builder, halves: Value, bits: Any, floats: Any) -> Value:
    """bfloat16 in 16-bit integers to float32: the same bits, higher up."""
    shift = ir.Constant(BITS, 16) if bits == BITS else ir.Constant(bits, [16] * LANES)
    return builder.bitcast(builder.shl(builder.zext(halves, bits), shift), floats)


def element_bytes(element: Any) -> int:
    """Bytes of a float or an integer type."""
    return 4 if element == FLOAT else int(element.width) // 8


def spread(builder: Builder, one: Value) -> Value:
    """One float in every lane."""
    first = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), one, ir.Constant(BITS, 0))
    return pick(builder, first, first, [0] * LANES)


def pick(builder: Builder, a: Value, b: Value, lanes: Sequence[int]) -> Value:
    """Lanes of a followed by b, by number."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(BITS, len(lanes)), list(lanes)))


def prefetch(builder: Builder, pointer: Value) -> None:
    """Bring a cache line to the second level."""
    at = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    hints = (ir.Constant(BITS, hint) for hint in (0, 2, 1))  # to read, into the second level, data
    call(builder, "llvm.prefetch.p0", ir.VoidType(), at, *hints)


class Sums:
    """Vectors that a loop adds to; they live in registers, since LLVM sees that nothing else reads their places."""

    def __init__(self, builder: Builder, count: int, kind: Any = VECTOR) -> None:
        self.builder = builder
        self.places = [cgutils.alloca_once(builder, kind) for _ in range(count)]
        for place in self.places:
            builder.store(ir.Constant(kind, [0.0] * LANES if kind is VECTOR else 0.0), place)

    def add(self, index: int, a: Value, b: Value) -> None:
        """sums[index] += a * b, rounded once."""
        place = self.places[index]
        self.builder.store(call(self.builder, FMA[a.type], a.type, a, b, self.builder.load(place)), place)

    def set(self, index: int, value: Value) -> None:
        """sums[index] = value."""
        self.builder.store(value, self.places[index])

    def values(self) -> list[Value]:
        """All sums."""
        return [self.builder.load(place) for place in self.places]


def totals(builder: Builder, vectors: Sequence[Value]) -> tuple[Value, int]:
    """The sum over the lanes of each of n = 1, 2 ... LANES vectors, in every LANES / n-th lane of one; and that step.

    Two vectors at a time, one half of each folded onto its other half. That takes a third of the instructions of adding
    up one vector after the other.
    """
    bits = len(vectors).bit_length() - 1
    held = [vectors[int(f"{i:0{bits}b}"[::-1], 2) if bits else 0] for i in range(len(vectors))]  # bits reversed
    terms = LANES
    while terms > 1:
        pairs = zip(held[::2], held[1::2], strict=True) if len(held) > 1 else [(held[0], held[0])]
        held, terms = [_fold(builder, a, b, terms) for a, b in pairs], terms // 2
    return held[0], LANES // len(vectors)


def _fold(builder: Builder, a: Value, b: Value, terms: int) -> Value:
    """Of every ``terms`` lanes the first half gets a's sums of a half, the second half b's.

    The lanes of one addend stay in place, a blend: only one port of a core moves lanes.
    """
    half = terms // 2
    first = [lane % terms < half for lane in range(LANES)]
    stay = [lane if low else LANES + lane for lane, low in enumerate(first)]
    move = [lane + half if low else LANES + lane - half for lane, low in enumerate(first)]
    return builder.fadd(pick(builder, a, b, stay), pick(builder, a, b, move))
