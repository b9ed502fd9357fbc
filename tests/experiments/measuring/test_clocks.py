"""What a look at the clocks reads, from pretended machines; what cannot be read is no finding."""

from pathlib import Path
from typing import Any

import pytest

from experiments.measuring import audit
from experiments.measuring.clocks import UNREADABLE, Clocks, gpu_clocks, look, throttle_events


def machine(root: Path, **files: object) -> Path:
    for name, content in files.items():
        path = root / "sys/devices/system/cpu" / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def test_events_of_all_cores_are_added_and_clocks_averaged(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        cpu0__thermal_throttle__core_throttle_count=2,
        cpu0__thermal_throttle__package_throttle_count=5,
        cpu1__thermal_throttle__core_throttle_count=1,
        cpu0__cpufreq__scaling_cur_freq=2_000_000,
        cpu1__cpufreq__scaling_cur_freq=3_000_000,
    )
    assert look("cpu", root) == Clocks(8, None, 2500.0)


def test_a_machine_that_tells_nothing_is_no_failure_and_said(tmp_path: Path) -> None:
    assert look("cpu", tmp_path) == UNREADABLE
    check = audit.not_throttled([(UNREADABLE, UNREADABLE)] * 3)
    assert str(check) == "throttled=ok (events not readable, clock not readable)"


def test_a_file_that_holds_no_number_is_not_read(tmp_path: Path) -> None:
    assert throttle_events(machine(tmp_path, cpu0__thermal_throttle__core_throttle_count="none")) is None


def test_events_before_and_between_rounds_are_not_the_rows() -> None:
    looks = [(Clocks(5, None, 2000.0), Clocks(5, None, 2100.0)), (Clocks(9, None, 2050.0), Clocks(9, None, 2000.0))]
    assert str(audit.not_throttled(looks)) == "throttled=ok (0 events, clock 2000 to 2100 MHz)"
    risen = audit.not_throttled([*looks, (Clocks(9), Clocks(11))])
    assert audit.failures([risen]) == "throttled=FAILED (2 events, clock 2000 to 2100 MHz)"


class Nvml:
    """pynvml as far as a look uses it."""

    class NVMLError(Exception):
        """What NVML raises."""

    NVML_CLOCK_SM = 1

    def __init__(self, reasons: int | None) -> None:
        self.reasons = reasons

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:  # noqa: N802
        if self.reasons is None:
            raise Nvml.NVMLError("not supported")
        return self.reasons

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:  # noqa: N802
        return 1980


@pytest.mark.parametrize(
    ("reasons", "held"),
    [(0, ()), (0x4, ()), (0x40, ("hardware thermal",)), (0x88, ("hardware slowdown", "power brake"))],
)
def test_a_gpu_says_what_holds_its_clock_and_a_power_cap_is_common(reasons: int, held: tuple[str, ...]) -> None:
    seen = gpu_clocks(Nvml(reasons), None)
    assert seen == Clocks(None, held, 1980.0)
    assert audit.not_throttled([(seen, seen)]).holds is not bool(held)


def test_a_gpu_that_does_not_answer_is_not_readable() -> None:
    assert gpu_clocks(Nvml(None), None) == UNREADABLE
