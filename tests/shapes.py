"""A pytest plugin: array shapes are checked at run time in tests, by beartype, wherever an annotation names an array.

Other annotations are left to mypy: beartype refuses some that mypy accepts (a Protocol that is not runtime_checkable,
Self outside a decorated class).
"""

from collections.abc import Callable
from inspect import isclass
from typing import Any, TypeVar, get_args

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

CHECKED_PACKAGES = ("variants", "experiments.measuring")
Function = TypeVar("Function", bound=Callable[..., Any])


def pytest_load_initial_conftests() -> None:
    """Before any of ours is imported."""
    install_import_hook(CHECKED_PACKAGES, f"{__name__}.checked")


def checked(function: Function) -> Function:
    """Check the parameters whose annotations name an array; jaxtyping calls this on signatures it makes."""
    hints = function.__annotations__
    function.__annotations__ = {name: hint for name, hint in hints.items() if _names_array(hint)}
    return beartype(function)


def _names_array(hint: object) -> bool:
    return (isclass(hint) and issubclass(hint, AbstractArray)) or any(map(_names_array, get_args(hint)))
