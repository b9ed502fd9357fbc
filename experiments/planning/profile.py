"""A device as numbers: what its datasheet promises, what kernels reach on it, and where each figure comes from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from variants.contract.dtype import Dtype
from variants.contract.geometry import AttentionGeometry

KERNELS = ("grouped", "latent")
LIMITS = ("hardware", "kernel")  # what the figures of a kernel show
NARROW = 256  # score width up to which one tile of queries, keys and values fits an ordinary kernel


@dataclass(frozen=True)
class Figure:
    """A number >= 0 and the text that says where it comes from."""

    value: float
    source: str

    @classmethod
    def parse(cls, raw: object, name: str) -> "Figure":
        """From ``{value: 4800, source: datasheet}``; ValueError names the figure."""
        if not (isinstance(raw, Mapping) and set(raw) == {"value", "source"} and _is_text(raw["source"])):
            raise ValueError(f"{name} must be a value and its source, {{value: NUMBER, source: TEXT}}; got {raw!r}")
        return cls(_number(raw["value"], f"{name}.value"), str(raw["source"]))


@dataclass(frozen=True)
class Kernel:
    """What the fastest known kernels of one kind reach; ``predict.latency_us`` says what each figure does.

    Times in us, rates in decimal GB/s; ``matmul_share`` is of the datasheet's rate. ``limited``: ``hardware`` where
    they come close to what the device allows, ``kernel`` where no known one does, so that a time says nothing about the
    architecture. ``source`` says how all of them were found.
    """

    fixed_us: float
    tile_us: float
    merge_us: float
    read_gbps: float
    cache_gbps: float
    matmul_share: float
    limited: str
    source: str

    def __post_init__(self) -> None:
        if self.limited not in LIMITS:
            raise ValueError(f"limited must be one of {', '.join(LIMITS)}; got {self.limited!r}")
        if not (0 < self.read_gbps <= self.cache_gbps and self.matmul_share > 0):
            raise ValueError(
                "a kernel needs read_gbps > 0, cache_gbps >= read_gbps and matmul_share > 0; "
                f"got {self.read_gbps:g}, {self.cache_gbps:g} and {self.matmul_share:g}"
            )

    @classmethod
    def parse(cls, raw: object, name: str) -> "Kernel":
        """From a config mapping; ValueError names what is missing, unknown or no number."""
        wanted = [f.name for f in fields(cls)]
        if not isinstance(raw, Mapping) or set(raw) != set(wanted):
            raise ValueError(f"{name} must hold {', '.join(wanted)}; got {_keys(raw)}")
        numbers = {n: _number(raw[n], f"{name}.{n}") for n in wanted if n not in ("limited", "source")}
        if not _is_text(raw["source"]):
            raise ValueError(f"{name}.source must say where the figures come from; got {raw['source']!r}")
        return cls(**numbers, limited=str(raw["limited"]), source=str(raw["source"]))


@dataclass(frozen=True)
class DeviceProfile:
    """One device. ``oracle`` is its name in tables of public latencies, None where there is none.

    ``read_gbps`` and ``matmul_share`` (of ``matmul_tflops``, the datasheet's dense rates) are what a floor is computed
    from: the best that any kernel has been seen to reach. ``cache_bytes``: last-level cache, 0 where it is not used.
    Raises ValueError if a kernel claims more than the device.
    """

    name: str
    oracle: str | None
    memory_bytes: Figure
    peak_read_gbps: Figure
    read_gbps: Figure
    cache_bytes: Figure
    matmul_tflops: Mapping[Dtype, Figure]
    matmul_share: Figure
    launch_us: Figure
    kernels: Mapping[str, Kernel]

    def __post_init__(self) -> None:
        if not 0 < self.read_gbps.value <= self.peak_read_gbps.value:
            raise ValueError(
                f"read_gbps must be > 0 and at most peak_read_gbps={self.peak_read_gbps.value:g}; "
                f"got {self.read_gbps.value:g}"
            )
        if not 0 < self.matmul_share.value <= 1:
            raise ValueError(f"matmul_share must be > 0 and at most 1; got {self.matmul_share.value:g}")
        for name, kernel in self.kernels.items():
            if kernel.read_gbps > self.read_gbps.value or kernel.matmul_share > self.matmul_share.value:
                raise ValueError(
                    f"kernels.{name} must not claim more than the device's read_gbps={self.read_gbps.value:g} and "
                    f"matmul_share={self.matmul_share.value:g}; got {kernel.read_gbps:g} and {kernel.matmul_share:g}"
                )

    @classmethod
    def parse(cls, raw: object) -> "DeviceProfile":
        """From the ``profile`` of ``conf/device/*.yaml``; ValueError in one line for anything it cannot be."""
        wanted = [f.name for f in fields(cls)]
        if not isinstance(raw, Mapping) or set(raw) != set(wanted):
            raise ValueError(f"device.profile must hold {', '.join(wanted)}; got {_keys(raw)}")
        rates, kernels = raw["matmul_tflops"], raw["kernels"]
        if not (isinstance(rates, Mapping) and rates):
            raise ValueError(f"device.profile.matmul_tflops must give a rate per dtype; got {rates!r}")
        if not (isinstance(kernels, Mapping) and set(kernels) == set(KERNELS)):
            raise ValueError(f"device.profile.kernels must hold {', '.join(KERNELS)}; got {_keys(kernels)}")
        if not _is_text(raw["name"]) or not (raw["oracle"] is None or _is_text(raw["oracle"])):
            raise ValueError(f"device.profile.name and .oracle must be text; got {raw['name']!r}, {raw['oracle']!r}")
        return cls(
            name=raw["name"],
            oracle=raw["oracle"],
            matmul_tflops={Dtype.parse(n): Figure.parse(f, f"matmul_tflops.{n}") for n, f in rates.items()},
            kernels={n: Kernel.parse(k, f"kernels.{n}") for n, k in kernels.items()},
            **{n: Figure.parse(raw[n], n) for n in wanted if n not in ("name", "oracle", "matmul_tflops", "kernels")},
        )

    def peak_tflops(self, dtype: Dtype) -> float:
        """The datasheet's dense matmul rate; ValueError lists the dtypes that the profile knows."""
        if dtype not in self.matmul_tflops:
            known = ", ".join(d.value for d in self.matmul_tflops)
            raise ValueError(f"the profile of {self.name} has matmul rates of {known} only; got {dtype.value}")
        return self.matmul_tflops[dtype].value


def kernel_of(geometry: AttentionGeometry) -> str:
    """Which kind of kernel reads such a cache.

    ``latent``: values lie inside keys that are too wide for an ordinary tile, so that scores and output share registers
    with one wide state (MLA, GLA); else ``grouped`` (MHA, GQA, MQA, GTA).
    """
    return "latent" if geometry.shares_state and geometry.d_qk > NARROW else "grouped"


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number >= 0; got {value!r}")
    return float(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _keys(raw: object) -> str:
    return ", ".join(map(str, raw)) if isinstance(raw, Mapping) else repr(raw)
