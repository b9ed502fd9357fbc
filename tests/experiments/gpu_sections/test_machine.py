"""The machine's own words are kept; ceilings are the ones that rows are held against."""

import subprocess

import pytest

from experiments.gpu_sections.machine import ASKED, ceilings, clocks, env
from experiments.gpu_sections.rig import READ_CEILING, Rig, Scale
from tests.experiments.builders import device
from tests.experiments.gpu_sections.rigs import rig

SAID = "580.159.04, 345 MHz, 3201 MHz, 1980 MHz, 3201 MHz, 700.00 W, 31\n"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, SAID, "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def test_clocks_are_asked_for_and_never_set(asked: list[list[str]]) -> None:
    row = clocks("clocks")
    assert (row["status"], row["driver_version"], row["clocks.sm"], row["temperature.gpu"]) == (
        "ok",
        "580.159.04",
        "345 MHz",
        "31",
    )
    assert asked == [["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"]]


def test_without_nvidia_smi_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str], **_: object) -> None:
        raise FileNotFoundError("no such file: nvidia-smi")

    monkeypatch.setattr(subprocess, "run", run)
    row = clocks("clocks")
    assert (row["status"], row["reason"]) == ("refused", "nvidia-smi does not answer: no such file: nvidia-smi")


@pytest.mark.usefixtures("asked")
def test_the_machine_is_described() -> None:
    first, second = env(rig())
    named = ("device", "processors", "last_level_cache", "versions", "commit", "free")
    assert [first[name] for name in named] == ["pretended", 2, 2**16, "torch 0", "commit", 2**30]
    assert second["case"] == "clocks, idle"


@pytest.mark.usefixtures("asked")
def test_ceilings_are_the_rigs() -> None:
    rows = {row["case"]: row for row in ceilings(rig(us=3.0))}
    assert rows["read"]["gbps"] == 100.0
    assert rows["read, resident"]["gbps"] == 1e6
    assert {case: row["tflops"] for case, row in rows.items() if case.startswith("matmul")} == {
        "matmul bf16": 1.0,
        "matmul fp16": 1.0,
        "matmul fp32": 1.0,
    }
    assert rows["one tiny kernel"]["us"] == 3.0


def test_the_read_ceiling_is_measured_over_far_more_than_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setattr("experiments.gpu_sections.rig.measure_ceilings", lambda sweep, timer: sizes.append(sweep.bytes))
    made = Rig(device(last_level_cache=2**16), scale=Scale())
    _ = made.ceilings
    assert sizes == [READ_CEILING * 2**16]
