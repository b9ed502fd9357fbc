"""What a row says about its machine, and how much of its memory may be used."""

import os
import platform
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from experiments.measuring import device as module
from experiments.measuring.device import Device, find_device
from tests.experiments.builders import device
from variants.contract.dtype import Dtype


def the_cpu() -> Device:
    found = find_device("cpu")
    assert found is not None
    return found


def test_the_cpu_in_front_of_us() -> None:
    cpu = the_cpu()
    assert cpu.kind == "cpu"
    assert cpu.name.strip()
    assert "\n" not in cpu.name
    assert 1 <= cpu.cores <= (os.cpu_count() or 1)
    assert cpu.memory == psutil.virtual_memory().total
    assert cpu.last_level_cache is None or 2**15 <= cpu.last_level_cache <= 2**33
    assert cpu.host
    assert f"torch {torch.__version__}" in cpu.versions
    assert "numpy" in cpu.versions
    assert cpu.versions.startswith("python 3.")
    assert cpu.torch == torch.device("cpu")
    cpu.synchronize()


def test_cores_are_those_this_process_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert the_cpu().cores == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert the_cpu().cores == len(allowed)


def test_auto_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = find_device("auto")
    assert found is not None
    assert found.kind == "cpu"
    assert find_device("cuda") is None


class Properties:
    name = "NVIDIA H200"
    multi_processor_count = 132
    L2_cache_size = 62_914_560
    total_memory = 150_000_000_000
    uuid = "6b1d2e3f-0000-0000-0000-000000000001"


def test_a_gpu_says_what_its_driver_says(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    fakes: dict[str, Any] = {
        "is_available": lambda: True,
        "get_device_properties": lambda index: Properties,
        "mem_get_info": lambda: (7, 9),
        "synchronize": lambda: waited.append(1),
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    gpu = find_device("auto")
    assert gpu is not None
    assert (gpu.kind, gpu.name, gpu.cores) == ("cuda", "NVIDIA H200", 132)
    assert (gpu.last_level_cache, gpu.memory) == (62_914_560, 150_000_000_000)
    assert gpu.free_memory() == 7
    assert "cuda" in gpu.versions
    assert gpu.uuid == "GPU-6b1d2e3f-0000-0000-0000-000000000001"
    gpu.synchronize()
    assert waited == [1]


@pytest.mark.parametrize("dtype", [Dtype.F64, Dtype.F32, Dtype.F16, Dtype.BF16])
def test_floats_are_computed_everywhere(dtype: Dtype) -> None:
    assert device().refuses(dtype) == []


@pytest.mark.parametrize("dtype", [Dtype.FP8_E4M3, Dtype.INT8, Dtype.INT4])
def test_codes_are_no_activations(dtype: Dtype) -> None:
    (reason,) = device().refuses(dtype)
    assert reason == f"cpu cannot multiply {dtype.value} activations; use fp64, fp32, fp16, bf16"


@pytest.mark.parametrize(("capability", "refused"), [((7, 5), True), ((8, 0), False), ((9, 0), False)])
def test_bf16_needs_an_ampere(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], refused: bool) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    gpu = device(kind="cuda")
    assert bool(gpu.refuses(Dtype.BF16)) is refused
    assert gpu.refuses(Dtype.F16) == []


# memory


def cgroup(monkeypatch: pytest.MonkeyPatch, folder: Path, limit: str | None, used: str = "0") -> None:
    """Read /sys/fs/cgroup from ``folder``; a limit of None means that there is no such file."""
    folder.mkdir()
    if limit is not None:
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    real = Path

    def place(*parts: Any) -> Path:
        return real(str(real(*parts)).replace("/sys/fs/cgroup", str(folder)))

    monkeypatch.setattr(module, "Path", place)


@pytest.mark.parametrize(
    ("limit", "used", "free"),
    [("3000000", "1000000", 2_000_000), ("1000", "5000", 0), ("1000000", "999999", 1)],
)
def test_a_container_may_use_less_than_its_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str, used: str, free: int
) -> None:
    cgroup(monkeypatch, tmp_path / "cgroup", limit, used)
    assert the_cpu().free_memory() == free


@pytest.mark.parametrize("limit", ["max", None])
def test_without_a_limit_the_hosts_free_memory_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None
) -> None:
    cgroup(monkeypatch, tmp_path / "cgroup", limit)
    available = psutil.virtual_memory()._replace(available=12_345)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: available)
    assert the_cpu().free_memory() == 12_345


def caches(monkeypatch: pytest.MonkeyPatch, folder: Path, *sizes: str) -> None:
    for index, size in enumerate(sizes):
        (folder / f"index{index}").mkdir(parents=True)
        (folder / f"index{index}" / "size").write_text(f"{size}\n")
    real = Path
    monkeypatch.setattr(module, "Path", lambda *p: folder if "cpu0" in str(real(*p)) else real(*p))


@pytest.mark.parametrize(
    ("sizes", "size"),
    [(("48K", "64K", "2048K", "491520K"), 503_316_480), (("32K", "1M"), 2**20), (("1G",), 2**30), (("512",), 512)],
)
def test_the_last_level_is_the_largest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sizes: tuple[str, ...], size: int
) -> None:
    caches(monkeypatch, tmp_path / "cache", *sizes)
    assert the_cpu().last_level_cache == size


def test_a_cache_that_cannot_be_read_is_unknown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    caches(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    assert the_cpu().last_level_cache is None


def test_a_macs_caches_come_from_sysctl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    caches(monkeypatch, tmp_path / "cache")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    said = {"hw.l2cachesize": "4194304", "hw.perflevel0.l2cachesize": "16777216"}
    monkeypatch.setattr(module, "_output", lambda *command: said.get(command[-1], ""))
    assert the_cpu().last_level_cache == 16_777_216


def test_a_checkout_says_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"rev-parse": "0123456789ab", "status": " M file"}
    monkeypatch.setattr(module, "_output", lambda *c: next((v for k, v in said.items() if k in c), ""))
    commit = module._commit.__wrapped__
    assert commit() == "0123456789ab-dirty"
    said["status"] = ""
    assert commit() == "0123456789ab"


def test_a_program_that_is_missing_says_nothing() -> None:
    assert module._output("/nowhere/at/all") == ""
    assert module._output("false") == ""
    assert module._output("echo", " x ") == "x"
