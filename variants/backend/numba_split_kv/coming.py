"""Rows of a cache that are read one block later, asked for while the present block is worked on."""

from numba.core import cgutils

from variants.backend.numba_split_kv.vectors import (
    INDEX,
    LINE,
    Builder,
    Value,
    element_bytes,
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
