"""The doctor's door: exit codes, the table, JSON, and what it refuses."""

import json
from dataclasses import replace

import pytest

from experiments import doctor as doctors
from experiments.checkup.disk import Disk
from experiments.checkup.reading import machine
from experiments.doctor import main, tell
from tests.experiments.builders import Street, shell
from tests.experiments.checkup.machines import LOAD, healthy

BUSY = healthy(load=replace(LOAD, busy=0.9))
STUCK = healthy(disk=Disk("results", 2**40, "Read-only file system"))


@pytest.fixture
def street(tmp_path, monkeypatch, capfd) -> Street:
    monkeypatch.setattr(machine, "read", lambda results: BUSY)
    return Street(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize(
    ("seen", "strict", "code"),
    [(healthy(), True, 0), (BUSY, False, 0), (BUSY, True, 3), (STUCK, False, 3)],
)
def test_the_exit_code_says_whether_anything_can_be_measured(seen, strict, code):
    assert tell(seen, as_json=False, strict=strict) == code


def test_a_problem_is_a_line_with_what_to_do_and_nothing_is_written(street):
    told = street.knock(main)
    assert (told.code, told.err) == (0, "")
    line = next(line for line in told.out.splitlines() if "other load" in line and line.startswith("problem"))
    assert "90.0 % of 16 CPUs" in line
    assert "end or wait for" in line
    assert "  cuda: eager, sdpa; bf16, fp16; timer wall, events, graph" in told.out.splitlines()
    assert told.out.splitlines()[-1].endswith(" ok, 0 notes, 1 problem")
    assert street.files() == []


def test_columns_are_aligned_and_plain_where_there_is_no_terminal(street):
    lines = street.knock(main).out.splitlines()
    column = lines[0].index("seen")
    assert "\x1b" not in "".join(lines)
    assert all(line[column - 1] == " " != line[column] for line in lines[1 : lines.index("")])


def test_json_holds_every_check_and_every_reading(street):
    told = json.loads(street.knock(main, "json=true").out)
    load = next(check for check in told["checks"] if check["name"] == "other load")
    assert (load["verdict"], load["stops"]) == ("problem", False)
    assert told["readings"]["load"]["busy"] == 0.9
    assert told["abilities"][0].startswith("cpu: eager, sdpa")


def test_strict_is_heard(street):
    assert street.knock(main, "strict=true").code == 3


def test_the_results_folder_is_the_one_named(street):
    street.monkeypatch.setattr(machine, "read", lambda results: healthy(disk=Disk(str(results), 2**40)))
    assert "elsewhere: writable" in street.knock(main, "results=elsewhere").out


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("json=2", "json must be true or false; got 2"),
        ("strict=maybe", "strict must be true or false; got 'maybe'"),
        ("results=null", "results must name a folder"),
        ("jsno=true", "jsno"),
        ("+hydra.callbacks.x._target_=os.system", "may not be set"),
    ],
)
def test_bad_input_is_one_line(street, argument, said):
    assert said in street.knock(main, argument).refusal


def test_help_says_what_verdicts_and_exit_codes_mean_without_loading_torch(street):
    told = street.knock(main, "--help")
    assert told.code == 0
    for said in ("note ", "problem ", "exit code"):
        assert said in told.out
    loaded = "import sys, experiments.doctor; print(sorted({'torch', 'psutil', 'numpy', 'rich'} & set(sys.modules)))"
    assert shell("-c", loaded, cwd=street.folder).out == "[]\n"


def test_on_a_terminal_a_problem_is_red_unless_colours_are_unwanted(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    tell(BUSY, as_json=False, strict=False)
    coloured = capsys.readouterr().out
    assert "\x1b[31m" in coloured
    assert all(len(line) < 200 for line in coloured.splitlines())
    monkeypatch.setenv("NO_COLOR", "1")
    tell(BUSY, as_json=False, strict=False)
    assert "\x1b[31m" not in capsys.readouterr().out


def test_this_machine_can_be_examined(tmp_path, capsys, monkeypatch):
    """The only test that reads the real one; whatever it is, eager runs there."""
    monkeypatch.setattr("experiments.checkup.reading.load.SECONDS", 0.0)
    monkeypatch.setattr("experiments.checkup.reading.barrier.SECONDS", 0.01)
    seen = machine.read(tmp_path)
    assert doctors.tell(seen, as_json=True, strict=False) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"torch", "backend eager", "other load", "memory"} <= {check["name"] for check in told["checks"]}
    assert "eager" in told["abilities"][0]
