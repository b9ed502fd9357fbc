"""Profiles of round numbers, so that a test can do its sums by hand, and those that are shipped."""

from dataclasses import replace
from typing import Any

import yaml

from experiments.planning.profile import DeviceProfile, Figure, Kernel
from tests.builders import ROOT
from variants.contract.dtype import Dtype

GOLDEN = (
    ROOT / "tests" / "golden" / "decode_latency.csv"
)  # some rows of the table below; Apache-2.0, NVIDIA aiconfigurator
SHARED = ROOT.parent / "shared" / "oracle" / "decode_latency.csv"
FITTED = ("a100_sxm", "h100_sxm", "h200")


def figure(value: float) -> Figure:
    """A number that a test made up."""
    return Figure(value, "a test")


def kernel(**changes: Any) -> Kernel:
    """1 TB/s, 100 of 200 TFLOP/s, and no cost that a test does not name."""
    plain = Kernel(0.0, 0.0, 0.0, 1000.0, 4000.0, 0.5, "hardware", "a test")
    return replace(plain, **changes)


def profile(grouped: Kernel | None = None, latent: Kernel | None = None, **changes: Any) -> DeviceProfile:
    """A device of 2 TB/s, 200 TFLOP/s and a cache of 1 MB."""
    plain = DeviceProfile(
        name="round numbers",
        oracle="round",
        memory_bytes=figure(1e9),
        peak_read_gbps=figure(2000.0),
        read_gbps=figure(1250.0),
        cache_bytes=figure(1e6),
        matmul_tflops={Dtype.BF16: figure(200.0)},
        matmul_share=figure(0.8),
        launch_us=figure(3.0),
        kernels={"grouped": grouped or kernel(), "latent": latent or kernel()},
    )
    return replace(plain, **changes)


def raw(name: str) -> dict[str, Any]:
    """The profile in a shipped yaml."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "device" / f"{name}.yaml").read_text())
    return dict(config["profile"])


def shipped(name: str) -> DeviceProfile:
    """A shipped device."""
    return DeviceProfile.parse(raw(name))
