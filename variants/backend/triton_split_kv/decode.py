"""A planned decode: kernels whose every argument but q is fixed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from variants.protocols import Attended


@dataclass(frozen=True)
class Launch:
    """One kernel, its grid, and its arguments after the first few."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def __call__(self, *first: Any) -> None:
        """Start it on the current stream; the host does not wait."""
        self.kernel[self.grid](*first, *self.arguments, **self.options)

    def compiled(self, *first: Any) -> Any:
        """The binary, specialised as a call would."""
        return self.kernel.warmup(*first, *self.arguments, grid=self.grid, **self.options)


@dataclass(frozen=True)
class Decode:
    """A planned decode. Every call writes the same two tensors and returns them."""

    name: str
    shape: tuple[int, int, int, int]
    o: Tensor
    lse: Tensor
    split: Launch
    merge: Launch | None

    def __call__(self, q: Tensor) -> Attended:
        """Attend. It neither allocates nor copies nor waits, so that a CUDA graph can hold it."""
        if q.shape != self.shape or q.dtype is not self.o.dtype:
            raise ValueError(
                f"q must be as planned, [B, Q, H, K] = {list(self.shape)} of {self.o.dtype}; "
                f"got {list(q.shape)} of {q.dtype}"
            )
        self.split(q, *q.stride())
        if self.merge is not None:
            self.merge()
        return self.o, self.lse

    def warm_up(self) -> None:
        """Compile and load the kernels by a first run, so that no timed call and no graph capture has to."""
        if self.o.is_cuda:
            self(self.o.new_zeros(self.shape))

    def compiled(self) -> list[Any]:
        """The binaries for a q without gaps, and nothing is run."""
        q = torch.empty(self.shape, dtype=self.o.dtype, device="meta")
        return [self.split.compiled(q, *q.stride()), *([] if self.merge is None else [self.merge.compiled()])]

    @property
    def written(self) -> list[Tensor]:
        """Every tensor that a call writes."""
        arguments = () if self.merge is None else self.merge.arguments
        return [self.o, self.lse, *(a for a in arguments if isinstance(a, Tensor) and a.is_floating_point())]


class ForCodes:
    """Decodes of one cache of codes, which leaves open what queries are made of: each made when first wanted."""

    def __init__(self, make: Callable[[torch.dtype], Decode]) -> None:
        self.of = cache(make)

    def __call__(self, q: Tensor) -> Attended:
        """Attend in the dtype of q."""
        return self.of(q.dtype)(q)
