"""Rotary position embedding as pure data: which columns turn, at which frequencies, and what it does to the scale.

Sources: RoFormer (arXiv 2104.09864, eq. 34); YaRN (arXiv 2309.00071, sections 3.2-3.4), in the form of DeepSeek-V3's
``inference/model.py`` (correction dims, ``mscale``); Llama 3.1's frequency scaling (``rope_type: llama3``); position
interpolation (arXiv 2306.15595, eq. 3; ``rope_type: linear``).
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from variants.contract.checks import check_number

STYLES = ("none", "half", "interleaved")


@dataclass(frozen=True)
class Yarn:
    """YaRN context extension. ``mscale``/``mscale_all_dim`` follow DeepSeek's config; None = the paper's default."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None

    def frequencies(self, plain: list[float], theta: float) -> list[float]:
        """Blend interpolated and plain frequencies over the ramp between beta_fast and beta_slow rotations."""
        width = 2 * len(plain)
        low = max(math.floor(self._dim_of(self.beta_fast, width, theta)), 0)
        high = min(math.ceil(self._dim_of(self.beta_slow, width, theta)), width - 1)
        span = max(high - low, 0.001)
        return [self._blend(f, min(max((i - low) / span, 0.0), 1.0)) for i, f in enumerate(plain)]

    def _blend(self, plain: float, ramp: float) -> float:
        return plain / self.factor * ramp + plain * (1 - ramp)

    def _dim_of(self, rotations: float, width: int, theta: float) -> float:
        """The column pair that turns ``rotations`` times over the original context."""
        return (
            width * math.log(self.original_max_position_embeddings / (rotations * 2 * math.pi)) / (2 * math.log(theta))
        )

    @property
    def amplitude(self) -> float:
        """Factor on cos and sin: 0.1 ln(factor) + 1, or DeepSeek's ratio of the two mscales."""
        if self.mscale and self.mscale_all_dim:
            return _mscale(self.factor, self.mscale) / _mscale(self.factor, self.mscale_all_dim)
        return _mscale(self.factor, 1.0)

    @property
    def softmax_factor(self) -> float:
        """Factor on the softmax scale of an MLA layer: mscale(mscale_all_dim)^2, both q and k being part-rotary."""
        return _mscale(self.factor, self.mscale_all_dim) ** 2 if self.mscale_all_dim else 1.0


@dataclass(frozen=True)
class Llama3:
    """Llama 3.1's scaling: long wavelengths are divided by ``factor``, short ones kept, a smooth ramp between."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    amplitude = 1.0
    softmax_factor = 1.0

    def frequencies(self, plain: list[float], theta: float) -> list[float]:
        """Scale each frequency by where its wavelength falls against the original context."""
        return [self._scale(f) for f in plain]

    def _scale(self, frequency: float) -> float:
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        ramp = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        ramp = min(max(ramp, 0.0), 1.0)
        return (1 - ramp) * frequency / self.factor + ramp * frequency


@dataclass(frozen=True)
class Linear:
    """Position interpolation: every position, and so every frequency, is divided by ``factor``."""

    factor: float

    amplitude = 1.0
    softmax_factor = 1.0

    def frequencies(self, plain: list[float], theta: float) -> list[float]:
        """All of them slower by the factor."""
        return [frequency / self.factor for frequency in plain]


Scaling = Yarn | Llama3 | Linear


@dataclass(frozen=True)
class Rotary:
    """A rotary embedding over the first ``width`` columns of a head; the others pass through.

    ``style`` none: no rotation; half: column i pairs with i + width/2 (Llama, Qwen); interleaved: 2i with 2i + 1
    (DeepSeek). ``inv_freq`` overrides the frequencies (one per pair), in radians per token.
    Raises ValueError for an unknown style, an odd width, or a frequency vector of the wrong length.
    """

    style: str
    width: int
    theta: float = 10000.0
    scaling: Scaling | None = None
    inv_freq: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise ValueError(f"rope style must be one of {', '.join(STYLES)}; got {self.style!r}")
        if self.width < 0 or self.width % 2:
            raise ValueError(f"rope width must be even and >= 0; got {self.width}")
        if self.inv_freq is not None and len(self.inv_freq) != self.width // 2:
            raise ValueError(f"inv_freq must have width/2 = {self.width // 2} entries; got {len(self.inv_freq)}")
        if self.theta <= 1:
            raise ValueError(f"rope_theta must be > 1; got {self.theta}")

    def frequencies(self) -> list[float]:
        """Radians per token of each column pair."""
        if self.inv_freq is not None:
            return list(self.inv_freq)
        plain = [self.theta ** (-2 * i / self.width) for i in range(self.width // 2)]
        return self.scaling.frequencies(plain, self.theta) if self.scaling else plain

    @property
    def amplitude(self) -> float:
        """Factor on cos and sin."""
        return self.scaling.amplitude if self.scaling else 1.0

    @property
    def softmax_factor(self) -> float:
        """Factor on an MLA layer's softmax scale: 1.873854 for DeepSeek-V3, 1 without YaRN."""
        return self.scaling.softmax_factor if self.scaling else 1.0

    def over(self, head_dim: int, fraction: float = 1.0) -> "Rotary":
        """The same rotation over ``fraction`` of a head's columns (``rotary_fraction``; Pythia has 0.25)."""
        width = int(head_dim * fraction)
        return replace(self, width=width - width % 2)


def parse_scaling(raw: Mapping[str, Any] | None) -> Scaling | None:
    """A Hugging Face ``rope_scaling`` mapping as data; ValueError names an unsupported type or a wrong field."""
    if not raw:
        return None
    if not isinstance(raw, Mapping):
        raise ValueError(f"rope_scaling must be a mapping with a type, or null; got {raw!r}")
    rest = {name: value for name, value in raw.items() if name not in ("rope_type", "type")}
    kind = raw.get("rope_type", raw.get("type"))
    classes: dict[str, type[Scaling]] = {"yarn": Yarn, "llama3": Llama3, "linear": Linear}
    if kind == "default":
        return None
    if kind not in classes:
        raise ValueError(f"rope_scaling type must be one of default, {', '.join(classes)}; got {kind!r}")
    check_fields(classes[kind], rest, f"rope_scaling of type {kind}")
    for name, value in rest.items():
        if value or not name.startswith("mscale"):  # null or 0 there means none
            check_number(f"rope_scaling.{name}", value)
    return classes[kind](**rest)


def check_fields(of: type, raw: Mapping[str, Any], what: str) -> None:
    """Raise ValueError naming a field of ``raw`` that dataclass ``of`` has not, or one that it needs."""
    known = {f.name: f.default is MISSING for f in fields(of)}
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ValueError(f"{what} has no field {unknown[0]!r}; it has {', '.join(sorted(known))}")
    missing = [name for name, needed in known.items() if needed and name not in raw]
    if missing:
        raise ValueError(f"{what} needs {', '.join(missing)}; got {', '.join(sorted(raw))}")


def _mscale(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0
