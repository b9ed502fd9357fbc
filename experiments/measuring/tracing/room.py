"""Memory that a watched step takes, by arithmetic: what does not fit is refused before anything is allocated."""

from experiments.measuring.device import Device
from experiments.measuring.prepare import HEADROOM, read_layout, replica_bytes
from experiments.measuring.series import Series
from variants.contract.cost import Point

COPIES = 4  # of K and V in float32 that eager holds at its worst moment: as numbers, end to end, masked, and to work on
SCORES = 4  # float32 tensors of the scores' shape at that moment
NOISE = 2 * 4 * 2**22  # bytes of the block that noise is copied from, and of its first draw


def peak_bytes(series: Series, point: Point) -> int:
    """Bytes that watching a step takes at most: weights, the caches before and after, eager's copies and scores."""
    parts = replica_bytes(series, point)
    unpacked = parts.get("decompressed keys and values", 0)
    numbers = 4 * sum(s.heads * s.width for s in read_layout(series).streams) * point.context * point.batch
    scores = 4 * point.batch * point.queries * series.spec.geometry().num_q_heads * point.context
    before = parts["cache"] + unpacked
    products = 2 * unpacked  # the product with the weights, and keys laid end to end
    return sum(parts.values()) + before + products + COPIES * numbers + SCORES * scores + NOISE


def check_room(series: Series, point: Point, device: Device) -> None:
    """ValueError unless the step fits into what is free."""
    needs, free = peak_bytes(series, point), device.free_memory()
    if needs > HEADROOM * free:
        raise ValueError(
            f"this step needs {needs:,} B and must stay below {HEADROOM:.0%} of the {free:,} B that are free; "
            "take a smaller context, batch or model"
        )
