"""Eyes on a running step: every torch call, every submodule's result, and the stages that a step goes through."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from experiments.measuring.tracing.ledger import Ledger
from experiments.measuring.tracing.memory import FRESH, FROM_CACHE, WEIGHTS
from variants.decode import Step
from variants.protocols import Attended
from variants.view import CacheView


@contextmanager
def watched(step: Step, x: Tensor, ledger: Ledger) -> Iterator[Step]:
    """The same step, entering into ``ledger`` what it makes; the module and its cache are as before afterwards."""
    module, cache = step.attention, step.cache
    assert isinstance(module, nn.Module)
    _know(module, x, [cache.view, step.view], ledger)
    with ExitStack() as undo:
        for name, submodule in module.named_children():
            for hook in _hooks(submodule, name, ledger):
                undo.callback(hook.remove)
        _wrap(undo, module, "entry", ledger, _entered)
        _wrap(undo, module, "query", ledger, _asked)
        _wrap(undo, module, "unpack", ledger, _nothing)
        _wrap(undo, module, "output", ledger, _answered)
        _wrap(undo, cache, "write", ledger, _nothing, stage="append")
        attend = _staged(step.plan.attend, "attend", ledger, _attended)
        undo.enter_context(_Calls(ledger))
        yield replace(step, plan=replace(step.plan, attend=attend))


class _Calls(TorchFunctionMode):
    """Tells the ledger of every call of torch's Python interface; what kernels do inside stays theirs."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self.ledger = ledger

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.ledger.saw(getattr(func, "__name__", str(func)), [*args, *(kwargs or {}).values()], result)
        return result


def _know(module: nn.Module, x: Tensor, views: Sequence[CacheView], ledger: Ledger) -> None:
    for name, parameter in module.named_parameters():
        ledger.know(parameter, name.split(".")[0], "weight", WEIGHTS)
    for view in views:
        for slab, row in zip(view.slabs, view.layout.slabs(), strict=True):
            ledger.know_rows(slab, row.offsets, FROM_CACHE)
    ledger.know(x, "x", "input", FRESH)


def _hooks(submodule: nn.Module, name: str, ledger: Ledger) -> Sequence[Any]:
    begun: list[int] = []

    def enter(*_: Any) -> None:
        ledger.inside.append(name)
        begun.append(len(ledger.made))

    def leave(_module: nn.Module, _given: Any, result: Tensor) -> None:
        ledger.inside.pop()
        own = ledger.made[begun.pop() :]
        if any(entry is ledger.entry_of(result) for entry in own):  # nn.Identity hands on what others made
            ledger.rename(result, name)

    return submodule.register_forward_pre_hook(enter), submodule.register_forward_hook(leave)


def _wrap(
    undo: ExitStack,
    owner: Any,
    name: str,
    ledger: Ledger,
    tell: Callable[[Ledger, Any], None],
    stage: str | None = None,
) -> None:
    """Shadow a method on this one object by itself within a stage."""
    setattr(owner, name, _staged(getattr(owner, name), stage or name, ledger, tell))
    undo.callback(delattr, owner, name)


def _staged(
    method: Callable[..., Any], stage: str, ledger: Ledger, tell: Callable[[Ledger, Any], None]
) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with ledger.stage(stage):
            result = method(*args)
            tell(ledger, result)
        return result

    return call


def _nothing(ledger: Ledger, result: Any) -> None:
    """A stage that returns nothing."""


def _asked(ledger: Ledger, q: Tensor) -> None:
    ledger.rename(q, "q", ("B", "Q", "H", "K"))


def _entered(ledger: Ledger, entries: dict[str, Tensor]) -> None:
    for name, entry in entries.items():
        ledger.rename(entry, name, ("B", "Q", "" if entry.shape[2] == 1 else "G", "W"))
        made = ledger.entry_of(entry)
        if made is not None:
            made.stored = True


def _attended(ledger: Ledger, attended: Attended) -> None:
    o, lse = attended
    ledger.rename(o, "o", ("B", "Q", "H", "V"))
    if lse is not None:
        ledger.rename(lse, "lse", ("B", "Q", "H"))


def _answered(ledger: Ledger, y: Tensor) -> None:
    ledger.rename(y, "y", ("B", "Q", "D"))
