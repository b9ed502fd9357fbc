"""study=predict: rows of a device that is not here, apart from measured ones; without it such a device is refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.door import Composed
from experiments.launcher import launch
from experiments.measuring import device as devices
from experiments.measuring.device import Device, find_device
from experiments.predicted import BACKEND
from experiments.record import Measurement
from experiments.records import load
from tests.builders import config
from tests.experiments.builders import composed, device
from tests.experiments.planning.profiles import shipped

LLAMA = config("model")["llama3_8b"]


def asked(attention: str = "gqa", of: str = "h200", origin: str = "predicted", **changes: Any) -> Composed:
    """A composed config of Llama-3-8B at batch 2 x 4,096 on a device that is not here."""
    made = composed(attention, model=LLAMA, **{"dtype": "bf16", "batch": 2, "context": 4096, **changes})
    made.values.update(device=config("device")[of], origin=origin)
    return made


def rows(*configs: Composed, code: int = 0) -> Sequence[Measurement]:
    """The rows of such a run."""
    assert launch(configs, "the command") == code
    return load(Path("results")).rows


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_predicted_row_says_so_and_carries_no_samples() -> None:
    attend, step = rows(asked())
    for row in (attend, step):
        assert (row.status, row.origin, row.device, row.backend) == ("ok", "predicted", "NVIDIA H200", BACKEND)
        assert (row.samples, row.latency_us_ci_low, row.host, row.threads, row.versions) == (None,) * 5
        assert (row.read_ceiling_gbps, row.kernel, row.bound) == (4580, "profile:grouped", "memory")
        assert row.roofline_fraction == pytest.approx(row.floor_us / row.latency_us_p50)  # type: ignore[operator]
    assert list(Path("results").rglob("*.npy")) == []
    assert attend.cache_bytes == 2 * 4096 * 4096


def test_latencies_are_those_of_the_profile() -> None:
    """Attend: GQA 32:8, cold; step: 5 launches, and weights, x, y and the entry once, at the ceiling."""
    attend, step = rows(asked())
    h200 = shipped("h200").kernels["grouped"]
    memory = (2 * 4096 * 4096 + 2 * 32 * 512) / (h200.read_gbps * 1e3)
    expected = h200.fixed_us + h200.tile_us * 4 / 64 + h200.merge_us * 2.321928 + memory
    assert attend.latency_us_p50 == pytest.approx(expected, rel=1e-3)
    weights = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    rest = (weights + 2 * 2 * 2 * 4096 + 2 * 4096) / 4580e3
    assert step.latency_us_p50 == pytest.approx(expected + 5 * 2.5 + rest, rel=1e-3)


def test_a_prefill_has_projections_and_attention_each_at_its_own_rate() -> None:
    """Two prompts of 4,096 tokens; GQA 32:8 of 128, and MLA's decompressed heads of 192 and 128, never its latent."""
    prompts, peak = 2 * 4096, 989e6
    pairs = 2 * 4096 * 4097 // 2
    grouped = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024), 2 * 32 * 256
    latent = 2 * (4096 * 32 * 192 + 4096 * 576 + 512 * 32 * 256 + 32 * 128 * 4096), 2 * 32 * 320
    for attention, products, (per_row, per_pair) in (("gqa", 4, grouped), ("mla", 4, latent)):
        row = rows(asked(attention, scopes=["prefill"], name=attention))[-1]
        expected = prompts * per_row / (peak * 0.8) + pairs * per_pair / (peak * 0.6667) + 2.5 * (products + 2)
        assert row.latency_us_p50 == pytest.approx(expected, rel=1e-3)
        assert (row.kernel, row.bound, row.samples) == ("profile:prefill (not fitted)", "compute", None)


def test_a_warm_row_finds_a_small_cache_where_it_was() -> None:
    cold, warm = (rows(asked(scopes=["attend"], temperature=t, name=t))[-1] for t in ("cold", "warm"))
    assert (cold.temperature, warm.temperature) == ("cold", "warm")
    assert warm.latency_us_p50 < cold.latency_us_p50  # type: ignore[operator]
    assert warm.key != cold.key


def test_latent_rows_on_a100_say_what_limits_them() -> None:
    row, _ = rows(asked("mla", of="a100_sxm"))
    assert row.kernel == "profile:latent (kernel-limited)"


def test_bytes_that_the_device_does_not_have_are_too_large() -> None:
    row, _ = rows(asked("mha", batch=32, context=4194304))
    assert row.status == "too_large"
    assert "NVIDIA H200 has 141000000000 B" in str(row.reason)
    assert row.origin == "predicted"


def test_a_storage_that_cannot_hold_the_layout_is_refused() -> None:
    row, _ = rows(asked(storage="ring"))
    assert (row.status, row.origin, row.latency_us_p50) == ("refused", "predicted", None)


def test_other_figures_are_another_row() -> None:
    one = asked(name="one")
    other = asked(name="other")
    kernels = other.values["device"]["profile"]["kernels"]
    faster = {
        **other.values["device"]["profile"],
        "kernels": {**kernels, "grouped": {**kernels["grouped"], "fixed_us": 1}},
    }
    other.values["device"] = {"kind": "h200", "profile": faster}
    assert len({row.key for row in [*rows(one), *rows(other)]}) == 4


def test_without_a_profile_nothing_can_be_predicted() -> None:
    with pytest.raises(
        ValueError, match="needs a device whose yaml in conf/device has a profile.*got device.kind='auto'"
    ):
        launch([asked(of="auto")], "")
    with pytest.raises(ValueError, match="NVIDIA B200 has matmul rates of fp8_e4m3, bf16, fp16 only; got fp32"):
        launch([asked(of="b200", dtype="fp32")], "")
    with pytest.raises(ValueError, match="origin must be one of measured, predicted; got 'guessed'"):
        launch([asked(origin="guessed")], "")
    assert list(Path().iterdir()) == []


def test_to_measure_on_a_device_that_is_not_here_is_refused() -> None:
    for row in rows(asked(of="b200", origin="measured")):
        assert (row.status, row.origin) == ("refused", "measured")
        assert row.reason == "this machine has no b200 device; study=predict tells what it would take"


@pytest.mark.parametrize(
    ("kind", "name", "same"),
    [
        ("h200", "NVIDIA H200", True),
        ("h100_sxm", "NVIDIA H100 80GB HBM3", True),
        ("h100_sxm", "NVIDIA H100 PCIe", False),
        ("a100_sxm", "NVIDIA A100-SXM4-80GB", True),
        ("a100_sxm", "NVIDIA A100-PCIE-40GB", False),
        ("b200", "NVIDIA GB200", False),
        ("b200", "NVIDIA H200", False),
        ("l40s", "NVIDIA L40S", True),
        ("l40s", "NVIDIA L40", False),
        ("h200", "NVIDIA H200 NVL", False),
    ],
)
def test_a_gpu_is_found_by_its_model(monkeypatch: pytest.MonkeyPatch, kind: str, name: str, same: bool) -> None:
    here: Device = replace(device(kind="cuda"), name=name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(devices, "_cuda", lambda: here)
    assert find_device(kind) == (here if same else None)
