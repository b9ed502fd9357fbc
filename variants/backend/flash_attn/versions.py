"""What each version of the library takes, as its own checks have it."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch

from variants.contract.geometry import AttentionGeometry


@dataclass(frozen=True)
class Version:
    """``majors`` of the GPU's compute capability; ``latent_major``: where a latent is read once as key and value."""

    module: str
    function: str
    majors: tuple[int, ...]
    latent_major: int | None = None
    page_multiple: int = 1


VERSIONS = {
    2: Version("flash_attn.flash_attn_interface", "flash_attn_with_kvcache", (8, 9, 10, 12), page_multiple=256),
    3: Version("flash_attn_interface", "flash_attn_with_kvcache", (9,), latent_major=9),
    4: Version("flash_attn.cute", "flash_attn_varlen_func", (9, 10), latent_major=10),
}


def takes_apart(version: int, geometry: AttentionGeometry) -> bool:
    """Whether the key is the value with a rope beside it, which versions 3 and 4 score apart (``qv``)."""
    return VERSIONS[version].latent_major is not None and len(geometry.key) == 2 and geometry.value == geometry.key[:1]


def takes(version: int, major: int | None, geometry: AttentionGeometry) -> bool:
    """Whether keys and values of these widths are among those compiled."""
    d_qk, d_v = geometry.d_qk, geometry.d_v
    if takes_apart(version, geometry):
        rope = d_qk - d_v
        return (rope, d_v) == (64, 512) if version == 4 else rope <= 64 and rope % 8 == 0 and 256 <= d_v <= 512
    if d_qk % 8 or d_v % 8:
        return False
    if version == 4 and major == VERSIONS[4].latent_major:
        return max(d_qk, d_v) <= 128 or (d_qk, d_v) in ((192, 128), (256, 256))
    if version == 4:
        return max(d_qk, d_v) <= 256
    equal = d_qk == d_v <= 256
    unequal = (128 < d_qk <= 192 and 96 < d_v <= 128) or (d_qk <= 64 and d_v <= 512)
    return equal or (version == 3 and unequal)


def installed(version: int) -> bool:
    """Whether the module is there; a broken parent package is none."""
    try:
        return find_spec(VERSIONS[version].module) is not None
    except ImportError:
        return False


def compute_major(device: str) -> int | None:
    """First number of the GPU's compute capability; None without a GPU."""
    if device != "cuda" or not torch.cuda.is_available():
        return None
    return torch.cuda.get_device_capability()[0]
