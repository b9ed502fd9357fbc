"""A compiler: flex compiles C++ through torch.compile, and triton a launcher in C."""

from dataclasses import dataclass

from experiments.checkup.check import Check


@dataclass(frozen=True)
class Compiler:
    """What is looked for (``CXX`` and ``CC`` or their defaults) and where it is; None: nowhere on the path."""

    cxx: str
    cxx_path: str | None
    cc: str
    cc_path: str | None


def check(seen: Compiler, gpus: int) -> list[Check]:
    """A missing one costs backends, not the whole machine."""
    missing = [name for name, path in ((seen.cxx, seen.cxx_path), (seen.cc, seen.cc_path)) if path is None]
    if not missing:
        return [Check("compiler", "ok", f"{seen.cxx_path}, {seen.cc_path}")]
    lost = ["flex on a CPU"] if seen.cxx_path is None else []
    lost += ["triton_split_kv and flex on the GPU"] if seen.cc_path is None and gpus else []
    if not lost:
        return [Check("compiler", "ok", f"{seen.cxx_path}; no {seen.cc}, which only a GPU's kernels need")]
    advice = f"install gcc and g++, or set CXX and CC; without it there is no {' and no '.join(lost)}"
    return [Check("compiler", "note", f"no {' and no '.join(missing)}", advice)]
