"""Put layers of ours where a model of theirs has its attention; everything around them stays as it is."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from experiments.measuring.checkpoint.families import FAMILIES, layers_of

Layer = Callable[[Tensor], Tensor]  # [B, Q, D] -> [B, Q, D]; it knows its own positions and its own past


class Seat(nn.Module):
    """Takes what their attention is given and uses the hidden states alone: masks, positions and caches are ours."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states: Tensor, *args: Any, **others: Any) -> tuple[Tensor, None]:
        """The layer's output, and no attention weights."""
        return self.layer(hidden_states), None


@contextlib.contextmanager
def seated(model: Any, layers: Sequence[Layer]) -> Iterator[None]:
    """Within it, the model attends by ``layers``, one for each of its own; after it, as before."""
    name, places = FAMILIES[model.config.model_type].attention, layers_of(model)
    theirs = [getattr(place, name) for place in places]
    try:
        for place, layer in zip(places, layers, strict=True):
            setattr(place, name, Seat(layer))
        yield
    finally:
        for place, own in zip(places, theirs, strict=True):
            setattr(place, name, own)
