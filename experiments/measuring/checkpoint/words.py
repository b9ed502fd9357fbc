"""What was converted, in a line."""

from experiments.measuring.checkpoint.conversion import name_of
from experiments.measuring.checkpoint.corpus import source
from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.passing import Converted

HOW = {"repeat": "heads repeated", "mean_pool": "heads averaged", "low_rank": "keys and values at low rank"}


def converted(checkpoint: Checkpoint, made: Converted) -> list[str]:
    """The line; none where the weights are the checkpoint's own."""
    if not made.conversions:
        return []
    before, after = name_of(checkpoint.specs[0]), name_of(made.attentions[0].spec)
    lost = "exact" if made.exact else "lossy"
    if made.error is not None:
        lost += f", mean relative error of a layer {made.error:.3g} on {source()}"
    return [f"converted from {before} to {after}: {HOW[made.method]}, {lost}"]
