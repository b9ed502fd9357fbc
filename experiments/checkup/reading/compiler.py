"""Where compilers are."""

import os
import shutil

from experiments.checkup.compiler import Compiler


def read() -> Compiler:
    """What CXX and CC name, else g++ and the first of gcc, clang and cc."""
    cxx, cc = os.environ.get("CXX", "g++"), os.environ.get("CC")
    usual = (shutil.which(name) for name in ("gcc", "clang", "cc"))
    return Compiler(cxx, shutil.which(cxx), cc or "gcc", shutil.which(cc) if cc else next(filter(None, usual), None))
