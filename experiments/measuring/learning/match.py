"""Parameters made equal: what an attention saves goes into its MLP, and what it takes more comes from there."""

from collections.abc import Mapping
from dataclasses import dataclass

from experiments.measuring.learning.lesson import Shape
from variants.protocols import Spec

CLOSE = 0.01  # how far apart, as a share of the baseline's, parameters may be


@dataclass(frozen=True)
class Matched:
    """A variant in the decoder: the MLP width that makes its parameters those of the baseline, and how many."""

    spec: Spec
    mlp_width: int
    parameters: int


def parameters(shape: Shape, spec: Spec, mlp_width: int, vocabulary: int) -> int:
    """Weights of the decoder: tied embedding; per layer an attention, a SwiGLU MLP and two norms; the last norm."""
    layer = spec.weight_elements + 3 * shape.hidden_size * mlp_width + 2 * shape.hidden_size
    return vocabulary * shape.hidden_size + shape.num_hidden_layers * layer + shape.hidden_size


def match(shape: Shape, specs: Mapping[str, Spec], baseline: str, vocabulary: int) -> dict[str, Matched]:
    """Every variant with the MLP width that comes nearest to the baseline's parameters.

    Raises ValueError where that is not within ``CLOSE`` of them.
    """
    wanted = parameters(shape, specs[baseline], shape.mlp_width, vocabulary)
    return {name: _matched(shape, name, spec, wanted, baseline, vocabulary) for name, spec in specs.items()}


def _matched(shape: Shape, name: str, spec: Spec, wanted: int, baseline: str, vocabulary: int) -> Matched:
    empty = parameters(shape, spec, 0, vocabulary)
    width = max(1, round((wanted - empty) / (parameters(shape, spec, 1, vocabulary) - empty)))
    found = parameters(shape, spec, width, vocabulary)
    if abs(found - wanted) > CLOSE * wanted:
        raise ValueError(
            f"parameters must match within {CLOSE:.0%} by the MLP width; {baseline} has {wanted:,}, {name} {found:,} "
            f"at mlp_width={width}: raise learning.model.mlp_width={shape.mlp_width}, or give {name} smaller sizes"
        )
    return Matched(spec, width, found)
