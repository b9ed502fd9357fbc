"""The predict door, end to end: what it writes and says, what it refuses, and what it does without."""

import csv
from pathlib import Path

import pytest

from experiments.predict import main
from tests.blocking import not_installed
from tests.experiments.builders import Street, shell
from tests.experiments.planning.profiles import GOLDEN

POINTS = "layout,q_heads,kv_heads,batch,context\ngrouped_d128,32,8,4,8192\nlatent_512_64,16,1,1,1024\n"


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Street:
    (tmp_path / "points.csv").write_text(POINTS)
    return Street(tmp_path, monkeypatch, capfd)


def test_points_become_predictions(street: Street) -> None:
    said = street.knock(main, "device=h200", "points=points.csv", "out=out.csv")
    assert (said.code, said.out) == (0, "2 points predicted for NVIDIA H200: out.csv\n")
    with (street.folder / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["bound"] for r in rows] == ["memory", "memory"]
    assert all(float(r["latency_us"]) > float(r["floor_us"]) > 0 for r in rows)


def test_the_fit_and_its_error_are_said_and_nothing_is_written(street: Street) -> None:
    before = street.files()
    said = street.knock(main, "-m", "device=h100_sxm,h200", f"oracle={GOLDEN}")
    assert said.code == 0
    assert said.out.count("matmul_share: ") == 4
    assert [line.split(" | ")[:4] for line in said.out.splitlines()[-4:]] == [
        ["NVIDIA H100 SXM", "grouped_d128", "63", "9"],
        ["NVIDIA H100 SXM", "latent_512_64", "48", "4"],
        ["NVIDIA H200", "grouped_d128", "63", "9"],
        ["NVIDIA H200", "latent_512_64", "48", "4"],
    ]
    assert street.files() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["points=points.csv", "out=o.csv"], "device must be one whose yaml in conf/device has a profile"),
        (["device=cuda", "points=points.csv", "out=o.csv"], "e.g. device=h200; got 'cuda'"),
        (["device=h300", "points=points.csv", "out=o.csv"], "Could not find 'device/h300'"),
        (["device=h200", "out=o.csv"], "points must name a CSV file"),
        (["device=h200", "points=points.csv"], "out must name a CSV file"),
        (["device=h200", "points=nowhere.csv", "out=o.csv"], "nowhere.csv"),
        (["device=h200", "points=points.csv", "out=points.csv"], "out must be another file than points"),
        (["device=b200", f"oracle={GOLDEN}"], "NVIDIA B200 was not fitted to an oracle"),
        (["-m", "device=h200,b200", "points=points.csv", "out=o.csv"], "needs an out of its own"),
        (
            ["device=h200", "device.profile.read_gbps.value=9e9", "points=points.csv", "out=o.csv"],
            "at most peak_read_gbps",
        ),
    ],
)
def test_what_cannot_be_is_one_line_and_writes_nothing(street: Street, arguments: list[str], said: str) -> None:
    before = street.files()
    assert said in street.knock(main, *arguments).refusal
    assert street.files() == before


def test_neither_torch_nor_pandas_is_needed(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(POINTS)
    code = not_installed("torch", "pandas", "matplotlib") + "from experiments.predict import main\nmain()\n"
    said = shell("-c", code, "device=h200", "points=points.csv", "out=out.csv", cwd=tmp_path)
    assert said.code == 0, said.err
    assert (tmp_path / "out.csv").read_text().count("\n") == 3
