"""A picture with a palette of its own most frequent colours: a third of the bytes, and every solid colour exact."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

MOST = 256


def with_palette(image: Image.Image) -> Image.Image:
    """The picture in at most 256 colours; a shade rarer than those, as edges have, becomes the nearest of them."""
    pixels = np.asarray(image.convert("RGB"), dtype=np.uint32)
    packed = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
    colours, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = np.sort(np.argsort(counts, kind="stable")[::-1][:MOST])
    nearest = _nearest(_parts(colours), _parts(colours[kept]))
    made = Image.fromarray(nearest[places].reshape(packed.shape).astype(np.uint8), mode="P")
    made.putpalette(_parts(colours[kept]).astype(np.uint8).tobytes())
    return made


def _parts(packed: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Red, green and blue, [n, 3]."""
    return np.stack([packed >> 16, packed >> 8 & 255, packed & 255], axis=1).astype(np.int64)


def _nearest(colours: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.intp]:
    """For each colour the index of the closest kept one, by squared distance."""
    distance = (colours**2).sum(1)[:, None] - 2 * colours @ kept.T + (kept**2).sum(1)
    return np.asarray(distance.argmin(axis=1), dtype=np.intp)
