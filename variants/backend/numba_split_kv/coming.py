"""Rows of a cache that are read one block later, asked for while the present block is worked on."""

from typing import Any

from numba import types
from numba.core import cgutils

from variants.backend.numba_split_kv.vectors import (
    INDEX,
    LINE,
    Builder,
    Value,
    data,
    element_bytes,
    instruction,
    number,
    prefetch,
)


class Coming:
    """Rows at ``places`` [T] of a cache, counted in elements from ``pointer``.

    They are asked for a few lines at a time, between pieces of work that hide them: a core has about sixteen requests
    under way, and one that asks for more at once waits, while memory later waits for it.
    """

    def __init__(self, builder: Builder, pointer: Value, places: Value) -> None:
        self.builder, self.pointer, self.places = builder, pointer, places
        self.line = number(LINE // element_bytes(pointer.type.pointee))

    def fetch(self, token: Value, begin: Value, end: Value) -> None:
        """Bring columns [begin, end) of a row to the second-level cache."""
        row = self.builder.gep(self.pointer, [self.builder.load(self.builder.gep(self.places, [token]))])
        with cgutils.for_range_slice(self.builder, begin, end, self.line, INDEX) as (column, _):
            prefetch(self.builder, self.builder.gep(row, [column]))


@instruction
def fetch(typing: Any, memory: Any, at: Any, start: Any, stop: Any, width: Any) -> Any:
    """Ask for memory[at[t]:.. + width], for start <= t < stop."""

    def generate(context: Any, builder: Builder, signature: Any, arguments: Any) -> Any:
        kinds, (memory, at, start, stop, width) = signature.args, arguments
        coming = Coming(builder, data(context, builder, kinds[0], memory), data(context, builder, kinds[1], at))
        with cgutils.for_range_slice(builder, start, stop, number(1), INDEX) as (token, _):
            coming.fetch(token, number(0), width)
        return context.get_dummy_value()

    i = types.int64
    return types.none(memory, at, i, i, i), generate
