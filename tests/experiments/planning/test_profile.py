"""Device profiles: every figure has a source, none claims more than the device, and a bad yaml is one line."""

from typing import Any

import pytest
import yaml

from experiments.planning.profile import DeviceProfile, kernel_of
from experiments.records import load
from tests.builders import ROOT, grouped, latent, tied
from tests.experiments.planning.profiles import FITTED, kernel, profile, raw, shipped
from variants.contract.dtype import Dtype

FILES = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "conf" / "device").glob("*.yaml")}
PROFILED = sorted(name for name, config in FILES.items() if "profile" in config)


def test_these_devices_have_a_profile() -> None:
    assert PROFILED == ["a100_sxm", "b200", "cpu", "h100_sxm", "h200", "l40s"]
    assert [FILES[name]["kind"] for name in PROFILED] == PROFILED


@pytest.mark.parametrize(
    ("name", "read", "bf16"),
    [("a100_sxm", 2039, 312), ("h100_sxm", 3350, 989), ("h200", 4800, 989), ("b200", 8000, 2250), ("l40s", 864, 362)],
)
def test_peaks_are_the_datasheets(name: str, read: float, bf16: float) -> None:
    assert shipped(name).peak_read_gbps.value == read
    assert shipped(name).peak_tflops(Dtype.BF16) == bf16


def test_the_cpu_profile_is_what_the_bundle_it_names_has_measured() -> None:
    rows = load(ROOT / "results" / "0001-quick-cpu").rows
    (read,) = {row.read_ceiling_gbps for row in rows}
    (matmul,) = {row.matmul_ceiling_tflops for row in rows}
    cpu = shipped("cpu")
    assert cpu.read_gbps.value == cpu.peak_read_gbps.value == pytest.approx(read, rel=5e-3)
    assert cpu.peak_tflops(Dtype.BF16) == pytest.approx(matmul, rel=5e-3)


@pytest.mark.parametrize("name", PROFILED)
def test_every_figure_says_where_it_comes_from(name: str) -> None:
    made = shipped(name)
    figures = [made.memory_bytes, made.read_gbps, made.cache_bytes, made.matmul_share, made.launch_us]
    assert all(len(f.source) >= 10 for f in [*figures, *made.matmul_tflops.values()])
    for it in made.kernels.values():
        assert it.source.startswith("fitted to" if name in FITTED else "NOT FITTED")


def test_public_latent_kernels_on_a100_are_marked_as_what_limits_them() -> None:
    limited = {(name, kind) for name in PROFILED for kind, k in shipped(name).kernels.items() if k.limited == "kernel"}
    assert limited == {("a100_sxm", "latent")}
    assert "KERNEL-LIMITED" in shipped("a100_sxm").kernels["latent"].source


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"read_gbps": 4800}, "read_gbps must be a value and its source"),
        ({"read_gbps": {"value": 4800, "source": " "}}, "read_gbps must be a value and its source"),
        ({"read_gbps": {"value": "fast", "source": "x"}}, "read_gbps.value must be a number >= 0; got 'fast'"),
        ({"read_gbps": {"value": 4801, "source": "x"}}, "at most peak_read_gbps=4800; got 4801"),
        ({"read_gbps": {"value": 4000, "source": "x"}}, "kernels.grouped must not claim more than the device's"),
        ({"matmul_share": {"value": 1.1, "source": "x"}}, "matmul_share must be > 0 and at most 1; got 1.1"),
        ({"matmul_tflops": {}}, "matmul_tflops must give a rate per dtype"),
        ({"matmul_tflops": {"fp3": {"value": 1, "source": "x"}}}, "dtype must be one of"),
        ({"kernels": {}}, "kernels must hold grouped, latent"),
        ({"name": ""}, "name and .oracle must be text"),
        ({"speed": 1}, "device.profile must hold name, oracle"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refused:
        DeviceProfile.parse({**raw("h200"), **change})
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fixed_us": -1.0}, "kernels.grouped.fixed_us must be a number >= 0"),
        ({"fixed_us": True}, "kernels.grouped.fixed_us must be a number >= 0"),
        ({"read_gbps": 0.0}, "needs read_gbps > 0, cache_gbps >= read_gbps"),
        ({"limited": "luck"}, "limited must be one of hardware, kernel"),
        ({"source": None}, "kernels.grouped.source must say"),
        ({"speed": 1}, "kernels.grouped must hold fixed_us"),
    ],
)
def test_a_kernel_that_cannot_be_is_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    kernels = raw("h200")["kernels"]
    with pytest.raises(ValueError, match=message):
        DeviceProfile.parse({**raw("h200"), "kernels": {**kernels, "grouped": {**kernels["grouped"], **change}}})


def test_a_dtype_without_a_rate_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="round numbers has matmul rates of bf16 only; got fp32"):
        profile(kernel()).peak_tflops(Dtype.F32)


def test_wide_shared_states_are_read_by_latent_kernels() -> None:
    mla, gla, gta = (
        latent(128, 512, 128, 64, 128),
        latent(128, 512, 128, 64, 128, num_latent_heads=2),
        tied(32, 8, 128, 64),
    )
    assert [kernel_of(s.geometry()) for s in (mla, gla, gta, grouped(32, 8, 128))] == [
        "latent",
        "latent",
        "grouped",
        "grouped",
    ]
