"""A pytest plugin: array shapes are checked at run time in tests, by beartype, wherever an annotation names an array.

Other annotations are left to mypy: beartype refuses some that mypy accepts (a Protocol that is not runtime_checkable,
Self outside a decorated class).
"""

from collections.abc import Callable, Iterator
from inspect import isclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

ROOT = Path(__file__).parents[1]
CHECKED = ("variants", "experiments/measuring")
# compilers read the source of functions in these files: nothing may wrap them
COMPILED = ("@njit", "@kernel", "@triton.jit", "@instruction", "torch.compile(")
Function = TypeVar("Function", bound=Callable[..., Any])


def pytest_load_initial_conftests() -> None:
    """Before any of ours is imported."""
    install_import_hook(list(_modules()), f"{__name__}.checked")


def _modules() -> Iterator[str]:
    """Dotted names of the files to check; a package's own name would stand for all that is below it."""
    for path in (path for folder in CHECKED for path in sorted((ROOT / folder).rglob("*.py"))):
        if path.stem != "__init__" and not any(mark in path.read_text(encoding="utf-8") for mark in COMPILED):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts)


def checked(function: Function) -> Function:
    """Check the parameters whose annotations name an array; jaxtyping calls this on signatures it makes."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _names_array(hint)}
    return beartype(function)


def _names_array(hint: object) -> bool:
    return (isclass(hint) and issubclass(hint, AbstractArray)) or any(map(_names_array, get_args(hint)))
