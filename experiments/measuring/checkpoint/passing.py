"""One pass of the original model over a text, in which the inputs of every layer are shown to whoever asks, in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.run import logits_of
from experiments.measuring.checkpoint.seat import Layer, seated
from variants.convert import Conversion, convert
from variants.protocols import Attention, Spec

Visit = Callable[[int, Tensor], None]  # the layer's number and its attention's inputs [N, T, D]


@dataclass(frozen=True)
class Converted:
    """Layers in the place of a checkpoint's own, and what became of each; no conversions where weights are the same."""

    attentions: tuple[Attention, ...]
    conversions: tuple[Conversion, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether nothing is lost but by rounding."""
        return all(conversion.exact for conversion in self.conversions)

    @property
    def method(self) -> str:
        """How the layers were made."""
        return self.conversions[0].method if self.conversions else "original"

    @property
    def error(self) -> float | None:
        """The mean of the layers' relative errors on the calibration text; None where there was none."""
        errors = [conversion.error for conversion in self.conversions if conversion.error is not None]
        return sum(errors) / len(errors) if errors else None


def visited(checkpoint: Checkpoint, windows: Int[Tensor, "N T"], visit: Visit) -> None:
    """Run the original over all windows at once; what ``visit`` is shown is gone when it returns."""

    def layer(number: int, own: Attention) -> Layer:
        def attend(x: Tensor) -> Tensor:
            visit(number, x)
            return torch.cat([own.reference(row) for row in x.split(1)])

        return attend

    layers = [layer(number, own) for number, own in enumerate(checkpoint.attentions)]
    with torch.no_grad(), seated(checkpoint.model, layers):
        logits_of(checkpoint.model, windows.to(checkpoint.model.device), keep=1)


def convert_layers(
    checkpoint: Checkpoint, targets: Sequence[Spec], windows: Int[Tensor, "N T"] | None = None
) -> Converted:
    """Every layer as its target, fitted to what the original's layer sees of ``windows``; ValueError in one line.

    Layers are converted during the pass: the inputs of one layer at a time are in memory. Without windows, nothing is
    fitted and no error is known: for what is exact.
    """
    made: dict[int, tuple[Any, Conversion]] = {}

    def visit(number: int, x: Tensor | None) -> None:
        made[number] = convert(checkpoint.attentions[number], targets[number], x)

    if windows is None:
        for number in range(len(targets)):
            visit(number, None)
    else:
        visited(checkpoint, windows, visit)
    layers, conversions = zip(*(made[number] for number in range(len(targets))), strict=True)
    return Converted(layers, conversions)
