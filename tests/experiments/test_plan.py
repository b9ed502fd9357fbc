"""``plan=true``: what would run, from arithmetic and predictions, and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest

from experiments import expected
from experiments.agenda import wanted_rows
from experiments.expected import SLACK, Forecast, Span, profile_of
from experiments.launcher import launch
from experiments.measuring import crew
from experiments.measuring.point import places
from experiments.plan import minutes
from experiments.recorded import Recorded
from tests.experiments.builders import composed, device, pretend, series

pytestmark = pytest.mark.usefixtures("pretended_machine")


def told(capfd: pytest.CaptureFixture[str], *configs: Any, code: int = 0) -> list[str]:
    """What a plan of these says; fails the test if a worker is asked for, or if anything is written."""
    before = sorted(Path().rglob("*"))
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew.Crew, "of", lambda *args: pytest.fail("a worker was started"))
        assert launch([with_plan(config) for config in configs], "") == code
    said = capfd.readouterr()
    assert said.err == ""
    assert sorted(Path().rglob("*")) == before
    return said.out.splitlines()


def with_plan(config: Any) -> Any:
    config.values["plan"] = True
    return config


def cells(lines: list[str], attention: str) -> list[str]:
    (line,) = (line for line in lines if line.startswith(attention))
    return line.split()[1:]


def test_a_plan_is_a_line_per_series_and_sums(capfd: pytest.CaptureFixture[str]) -> None:
    lines = told(capfd, composed("gqa", context=[16, 32, 64]), composed("mla"))
    assert lines[0].split() == ["series", "points", "there", "refused", "too_large", "to_measure", "GiB", "minutes"]
    assert cells(lines, "gqa")[:5] == ["3", "0", "0", "0", "3"]
    assert cells(lines, "mla")[:5] == ["2", "0", "0", "0", "2"]
    assert "5 points of 2 series: 0 are there, 5 to be measured" in lines
    assert re.match(r"expected minutes: [\d.]+(-[\d.]+)?, an estimate, .* from the profile of two CPU cores", lines[-2])
    assert lines[-1] == "nothing was measured or written"


def test_what_is_there_is_counted_and_its_rows_foretell_the_rest(capfd: pytest.CaptureFixture[str]) -> None:
    launch([composed("gqa", context=16)], "")
    lines = told(capfd, composed("gqa", context=[16, 32]))
    assert cells(lines, "gqa")[:5] == ["2", "1", "0", "0", "1"]
    assert "rows that are there, in results/runs/test: 2 ok" in lines
    lines = told(capfd, composed("gqa", context=16, conduct={"resume": "all"}))
    assert cells(lines, "gqa")[:5] == ["1", "0", "0", "0", "1"]
    assert lines[-2].endswith("from earlier rows (2 rows)")


def test_refusals_have_their_reasons_once(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(device(free=2**20), monkeypatch)
    lines = told(
        capfd,
        composed("gqa", context=[16, 2**20, 2**21]),
        composed("mha", context=[16, 32], device="cuda"),
        composed("mla", options={"kv_lora_rank": 0}),
        composed("mqa", context=16, scopes=["step", "absorb"]),
    )
    assert cells(lines, "gqa")[:5] == ["3", "0", "0", "2", "1"]
    assert cells(lines, "mha") == ["2", "0", "2", "0", "0"]
    assert "2 x refused: this machine has no cuda device" in lines
    (large,) = (line for line in lines if "too_large" in line and " x " in line)
    assert re.match(r"2 x too_large: gqa-contiguous-sdpa-\S+, e\.g\. needs .*GiB", large)
    assert any(line.startswith("1 x refused: absorb: ") for line in lines)
    assert any(line.startswith("1 x error: mla: kv_lora_rank") for line in lines)
    assert lines[0].split()[0] == "series"


def test_a_plan_of_predictions_measures_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    from tests.builders import config

    what = composed("gqa", dtype="bf16")
    what.values.update(origin="predicted", device=config("device")["h200"])
    lines = told(capfd, what)
    assert cells(lines, "gqa")[:5] == ["2", "0", "0", "0", "0"]
    assert lines[-1] == "nothing was measured or written"


@pytest.mark.slow
def test_many_points_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    many = [composed(a, context=list(range(1, 301))) for a in ("gqa", "mla")]
    lines = told(capfd, *many)
    assert len(lines) == 7  # the head, two series, four lines of sums
    assert "600 points of 2 series: 0 are there, 600 to be measured" in lines


def test_bad_input_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workload.context must be"):
        launch([with_plan(composed(context=0))], "")
    assert list(tmp_path.iterdir()) == []


# how long


def foretold(us: float | None, monkeypatch: pytest.MonkeyPatch, temperature: str = "warm", **timer: Any) -> Span:
    """One point of one row whose call takes ``us``, its preparation left out."""
    made = series(context=16, scopes=["attend"], temperature=temperature, timer={"replicas": 5, **timer})
    monkeypatch.setattr(expected, "_prepared", lambda where, first: Span())
    monkeypatch.setattr(expected, "OPENING_S", 0.0)
    monkeypatch.setattr(expected, "WARMING", 0)
    monkeypatch.setattr(expected, "_predicted_us", lambda *args: us)
    forecast = Forecast(Recorded())
    where = places(made)[0]
    (span,) = forecast.of_point([where], [wanted_rows(where)], first=True)
    return span


def test_time_lies_between_the_least_rounds_and_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five calls of a second per round, 6 to 16 rounds; a prediction may be ``SLACK`` times too short."""
    told = foretold(1e6, monkeypatch, rounds=6, max_rounds=16)
    assert (told.least, told.most) == pytest.approx((30.0, 16 * 5 * SLACK))


def test_a_cold_round_is_swept_at_most_and_perhaps_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep of a second; ten calls of a second per round, touched and timed, of which one opens it."""
    monkeypatch.setattr(expected, "_evicting_s", lambda device: 1.0)
    told = foretold(1e6, monkeypatch, rounds=6, max_rounds=6, temperature="cold")
    assert (told.least, told.most) == pytest.approx((6 * 12.0, 6 * (12.0 * SLACK + 1.0)))


def test_the_budget_bounds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told = foretold(1e5, monkeypatch, rounds=2, max_rounds=1000, budget_s=20)
    assert (told.least, told.most) == pytest.approx((1.0, 20 + 5 * 0.1 * SLACK))
    told = foretold(1e6, monkeypatch, rounds=10, max_rounds=1000, budget_s=20)  # the least rounds take longer
    assert (told.least, told.most) == pytest.approx((50.0, 10 * 5 * SLACK))


def test_a_device_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind, known in (
        ("NVIDIA H200", "cuda", "NVIDIA H200"),
        ("a GeForce", "cuda", None),
        ("any", "cpu", "two CPU cores"),
    ):
        machine = device(kind=kind)
        object.__setattr__(machine, "name", name)
        pretend(machine, monkeypatch)
        profile = profile_of(places(series(device="auto"))[0])
        assert (profile.name if profile else None) == known or (known and profile and known in profile.name)


@pytest.mark.parametrize(
    ("least", "most", "said"), [(0, 0, "0.0"), (30, 30, "0.5"), (30, 90, "0.5-1.5"), (600, 6000, "10-100")]
)
def test_minutes(least: float, most: float, said: str) -> None:
    assert minutes(Span(least, most)) == said
