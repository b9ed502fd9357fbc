"""What a step made, tensor by tensor: name, stage, size, and from what it was computed.

Names come from the run: a stage's result has the stage's name, a product with a weight the weight's, the product of
queries with what was read from the cache is the scores. A tensor computed elementwise keeps its parent's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from experiments.measuring.tracing.letters import of_equation
from experiments.measuring.tracing.memory import FROM_CACHE, Known, Made, Row

PRODUCTS = ("einsum", "linear", "matmul", "bmm", "scaled_dot_product_attention")
RENAMED = {"exp": "weights", "softmax": "weights", "sub": "scores less their largest"}  # of scores


@dataclass
class Ledger:
    """Grows while a step runs. ``keep``: copies of the values too, for shapes small enough to print."""

    keep: bool = False
    made: list[Made] = field(default_factory=list)
    stages: list[str] = field(default_factory=list)
    inside: list[str] = field(default_factory=list)
    known: dict[int, Known | Row] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """What is made within belongs to ``name``."""
        self.stages.append(name)
        try:
            yield
        finally:
            self.stages.pop()

    def know(self, tensor: Tensor, name: str, kind: str, origin: frozenset[str] = frozenset()) -> None:
        """Memory that was there before the step."""
        self.known[_place(tensor)] = Known(name, kind, origin)

    def know_rows(self, slab: Tensor, offsets: Mapping[str, int], origin: frozenset[str]) -> None:
        """A slab of bytes [P, heads, S, row] and the streams that lie in its rows."""
        self.known[_place(slab)] = Row(slab.shape[-1], offsets, origin)

    def known_as(self, tensor: Tensor) -> Known | None:
        """What is known of a tensor's memory."""
        found = self.known.get(_place(tensor))
        if isinstance(found, Row):
            return found.of(tensor)
        gone = found is not None and found.made is not None and not found.made.alive
        return None if gone else found  # its address may be another tensor's by now

    def entry_of(self, tensor: Tensor) -> Made | None:
        """The entry of a tensor that the step made, or of one it is a view of."""
        known = self.known_as(tensor)
        return known.made if known else None

    def rename(self, tensor: Tensor, name: str, letters: Sequence[str] = ()) -> None:
        """Say what a tensor turned out to be; a view of a part of something larger does not name the whole."""
        entry = self.entry_of(tensor)
        if entry is None or entry.bytes != tensor.nbytes:
            return
        entry.name, entry.named, entry.inner = name, True, False
        if letters or entry.shape != tuple(tensor.shape):
            entry.letters, entry.shape = tuple(letters), tuple(tensor.shape)

    def saw(self, function: str, args: Sequence[Any], result: Any) -> None:
        """A call that has returned; what it made is entered, views and tensors changed in place are not."""
        given = list(_tensors(args))
        places = {_place(tensor) for tensor in given}
        if function == "__setitem__":
            self._stored(given)
        for tensor in _tensors([result]):
            if tensor.numel() and _place(tensor) not in places:
                self._enter(function, args, given, tensor)

    def _enter(self, function: str, args: Sequence[Any], given: Sequence[Tensor], tensor: Tensor) -> None:
        parents = [(t, known) for t in given if (known := self.known_as(t))]
        origin = frozenset().union(*(known.origin for _, known in parents))
        name, letters, named = self._name(function, args, parents, tensor)
        entry = Made(
            stage=self.stages[-1] if self.stages else "step",
            name=name,
            letters=letters or _as_cached(origin, tensor),
            shape=tuple(tensor.shape),
            dtype=tensor.dtype,
            bytes=tensor.untyped_storage().nbytes(),
            function=function,
            origin=origin,
            inner=bool(self.inside),
            storage=StorageWeakRef(tensor.untyped_storage()),
            value=tensor.detach().clone() if self.keep else None,
            named=named,
        )
        self.made.append(entry)
        self.known[_place(tensor)] = Known(name, "made", origin, entry)

    def _name(
        self, function: str, args: Sequence[Any], parents: Sequence[tuple[Tensor, Known]], tensor: Tensor
    ) -> tuple[str, tuple[str, ...], bool]:
        """The name, the letters of the axes, and whether the name is worth a line of its own."""
        if function in PRODUCTS:
            return self._product(function, args, parents)
        for parent, known in parents:
            entry = known.made
            if parent.shape == tensor.shape and known.kind != "weight":
                letters = entry.letters if entry and entry.shape == tuple(parent.shape) else ()
                name = RENAMED.get(function, known.name) if known.name.startswith("scores") else known.name
                return name, letters, bool(entry and entry.named)
        cached = dict.fromkeys(known.name for _, known in parents if known.origin == FROM_CACHE)
        return " and ".join(cached) or function, (), False

    def _product(
        self, function: str, args: Sequence[Any], parents: Sequence[tuple[Tensor, Known]]
    ) -> tuple[str, tuple[str, ...], bool]:
        letters = of_equation(args[0]) if function == "einsum" else []
        if function == "linear":
            letters = [("B", "Q", "")]
        if self.stages and self.stages[-1] in ("entry", "query", "output"):  # only new tokens are at hand there
            letters = [tuple("Q" if axis == "T" else axis for axis in axes) for axes in letters]
        weights = [known.name for _, known in parents if known.kind == "weight"]
        if weights:
            return weights[-1], letters[-1] if letters else (), True
        if not self.stages or self.stages[-1] != "attend":
            return function, letters[-1] if letters else (), True
        weighted = function == "scaled_dot_product_attention" or any(k.name == "weights" for _, k in parents)
        if function == "einsum":
            self.rename(list(_tensors(args[1:]))[-1], "V as read" if weighted else "K as read", letters[-2])
        return "o" if weighted else "scores", letters[-1] if letters else (), True

    def _stored(self, given: Sequence[Tensor]) -> None:
        """Something was written into memory that has a name, as decompressed keys are: that is what it was."""
        target = self.known_as(given[0]) if given else None
        if target and target.kind == "stream" and len(given) > 1 and self.stages and self.stages[-1] == "unpack":
            self.rename(given[-1], target.name, ("B", "H", "T", "W"))


def _as_cached(origin: frozenset[str], tensor: Tensor) -> tuple[str, ...]:
    """Numbers of the cache keep its axes."""
    if origin != FROM_CACHE or tensor.dim() != 4:
        return ()
    return ("B", "" if tensor.shape[1] == 1 else "G", "T", "W")


def _place(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
