"""How often something was compiled in this process: within a sample it would be timed as if it were the kernel."""

import sys
from functools import cache
from typing import Any


def compilations() -> int:
    """Graphs that torch has compiled and functions that numba has compiled so far, as far as they can be told."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")  # not imported: nothing compiled
    graphs = int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0
    return graphs + len(_numba())


@cache
def _numba() -> list[str]:
    """One entry per function that numba compiles from the first call on."""
    begun: list[str] = []
    try:
        from numba.core import event
    except ImportError:
        return begun

    class Starts(event.Listener):
        def on_start(self, event: Any) -> None:
            begun.append(event.kind)

        def on_end(self, event: Any) -> None:
            pass

    event.register("numba:compile", Starts())
    return begun
