"""The compare door, end to end: exit codes, what it prints, and what it refuses in one line."""

import subprocess
import sys
from pathlib import Path

import pytest

from experiments.compare import main
from tests.blocking import not_installed
from tests.experiments.builders import Street, shell
from tests.experiments.telling.comparing.runs import keep, point

NO_TORCH = not_installed("torch") + "\nfrom experiments.compare import main\nmain()\n"


@pytest.fixture
def street(tmp_path, monkeypatch, capfd) -> Street:
    keep(tmp_path / "before", point(us=100.0), point("mha", us=200.0))
    keep(tmp_path / "after", point(us=101.0), point("mha", us=201.0), seed=9)
    keep(tmp_path / "slow", point(us=130.0), point("mha", us=201.0), seed=9)
    return Street(tmp_path, monkeypatch, capfd)


def test_no_regression_is_exit_code_zero(street):
    told = street.knock(main, "a=before", "b=after")
    assert (told.code, told.err) == (0, "")
    assert "no regression by more than 5 %" in told.out


def test_a_regression_is_exit_code_one_and_the_threshold_lifts_it(street):
    told = street.knock(main, "a=before", "b=slow")
    assert told.code == 1
    assert "1.30x slower: regression" in told.out
    assert street.knock(main, "a=before", "b=slow", "threshold=0.5").code == 0


def test_out_writes_a_sheet_and_nothing_else(street):
    before = street.files()
    told = street.knock(main, "a=before", "b=after", "out=sheets/x.csv")
    assert told.code == 0
    assert set(street.files()) - set(before) == {"sheets", "sheets/x.csv"}
    assert "all points: sheets/x.csv" in told.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("b=after",), "a must name a folder with records below it"),
        (("a=before",), "b must name a folder"),
        (("a=nowhere", "b=after"), "there is no nowhere"),
        (("a=before", "b=empty"), "empty has none"),
        (("a=before", "b=after", "threshold=-1"), "threshold must be a number >= 0"),
        (("a=before", "b=after", "threshold=few"), "threshold must be a number >= 0, e.g. 0.05 for 5 %; got 'few'"),
        (("a=before", "b=after", "confidence=95"), "confidence must be a number from 0.5 to 0.9999"),
        (("a=before", "b=after", "match=name"), "match must be one of key, point; got 'name'"),
        (("a=before", "b=after", "across=colour"), "across must name some of attention, storage"),
        (("a=before", "b=elsewhere"), "no key in common: match=point would match 1"),
        (("a=before", "b=failing"), "none of the 1 they share is (first gqa step: a ok, b crash)"),
        (("a=before", "b=after", "out=before"), "before"),
        (("a=before", "b=after", "+hydra.callbacks.x._target_=os.system"), "may not be set"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(street, arguments, said):
    from tests.experiments.telling.rows import failed

    (street.folder / "empty").mkdir()
    keep(street.folder / "elsewhere", point(key="other", threads=9))
    keep(street.folder / "failing", failed("gqa", "step", 1024, "crash", "killed", key=point().key))
    before = street.files()
    assert said in street.knock(main, *arguments).refusal
    assert street.files() == before


def test_torch_is_not_needed_and_a_pipe_gets_plain_text(street):
    told = shell("-c", NO_TORCH, "a=before", "b=slow", cwd=street.folder)
    assert told.code == 1, told.err
    assert "\x1b" not in told.out
    assert len({line.index("[") for line in told.out.splitlines() if "[" in line}) == 1  # columns are aligned


def test_help_explains_exit_codes_and_loads_no_pandas(street):
    told = street.knock(main, "--help")
    assert told.code == 0
    assert "exit code" in told.out
    loaded = "import sys, experiments.compare; print(sorted({'pandas', 'numpy', 'scipy', 'torch'} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
