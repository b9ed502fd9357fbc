"""A CPU's matrix unit (Intel AMX) for bfloat16: whether there is one, and its instructions.

A tile register holds 16 rows of 64 bytes. C [16 x 16] float32 += A [16 x 32] x B [32 x 16], where B's rows come in
pairs: B[k / 2] holds k and k + 1 of every column side by side (Intel SDM volume 2, TDPBF16PS).
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

from variants.backend.numba_split_kv.columns import EDGE, STEP
from variants.backend.numba_split_kv.operands import Array
from variants.backend.numba_split_kv.vectors import LANES, LINE, Builder, Value, call, data, instruction, number

ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18  # Linux: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)
HALVES = ir.VectorType(ir.IntType(16), STEP)
WORDS = EDGE * EDGE  # of 32 bits in a tile
C, A, B = (0, 1, 2, 3), (4, 5), (6, 7)  # tile registers


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


def open_sums(builder: Builder, sums: list[Value], fresh: Value) -> None:
    """Sums into their registers, or zeros."""
    with builder.if_else(fresh) as (then, otherwise):
        with then:
            for register in C[: len(sums)]:
                _unit(builder, "tilezero", _tile(register))
        with otherwise:
            for register, at in zip(C, sums, strict=False):
                load_tile(builder, register, at, number(LINE))


def close_sums(builder: Builder, sums: list[Value]) -> None:
    """Sums back to memory."""
    for register, at in zip(C, sums, strict=False):
        _unit(builder, "tilestored64", _tile(register), _bytes(builder, at), number(LINE))


def load_tile(builder: Builder, register: int, pointer: Value, bytes_apart: Value) -> None:
    """16 rows of 64 bytes, that many bytes apart, into a register."""
    _unit(builder, "tileloadd64", _tile(register), _bytes(builder, pointer), bytes_apart)


def multiply(builder: Builder, c: int, a: int, b: int) -> None:
    """C += A x B."""
    _unit(builder, "tdpbf16ps", _tile(c), _tile(a), _tile(b))


def _unit(builder: Builder, name: str, *arguments: Value) -> None:
    call(builder, f"llvm.x86.{name}", ir.VoidType(), *arguments)


def _bytes(builder: Builder, pointer: Value) -> Value:
    return builder.bitcast(pointer, ir.IntType(8).as_pointer())


def _tile(register: int) -> Value:
    return ir.Constant(ir.IntType(8), register)
