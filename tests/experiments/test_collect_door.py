"""The collect door: what it says, where it writes, what it refuses in one line."""

import pyarrow.parquet as pq
import pytest

from experiments.collect import main
from experiments.records import SeriesLog
from tests.blocking import not_installed
from tests.experiments.builders import Street, shell
from tests.experiments.telling.rows import failed, row

LEAN = not_installed("torch", "pandas", "hydra") + "\nfrom experiments.collect import main\nmain()\n"


@pytest.fixture
def street(tmp_path, monkeypatch, capfd) -> Street:
    runs = tmp_path / "results" / "runs"
    SeriesLog(runs / "a" / "mha").append(row(key="k"), row(key="k", us=2.0), failed("mla", "step", 8, "oom", "x"))
    SeriesLog(runs / "b,c" / "mha").append(row("gqa"))
    return Street(tmp_path, monkeypatch, capfd)


def test_without_arguments_everything_is_collected(street):
    before = street.files()
    told = street.knock(main)
    assert (told.code, told.err) == (0, "")
    assert told.out.splitlines() == [
        "3 rows of 2 files: 2 ok, 1 oom",
        "1 older rows superseded by a newer row of the same key and machine",
        "written: results/records.parquet",
        "written: results/records.csv",
    ]
    assert set(street.files()) - set(before) == {"results/records.parquet", "results/records.csv"}


@pytest.mark.parametrize(("runs", "rows"), [("results/runs/b,c", 1), ("[results/runs/a,results/runs]", 3)])
def test_runs_are_a_folder_or_a_list_of_them(street, runs, rows):
    assert street.knock(main, f"runs={runs}", "out=made/here.parquet").code == 0
    assert pq.read_metadata(street.folder / "made/here.parquet").num_rows == rows


def test_lines_that_are_no_records_are_warnings(street):
    (street.folder / "records.jsonl").write_text("{}\n" * 25 + row().to_json())
    told = street.knock(main, "runs=records.jsonl")
    assert told.code == 0
    warnings = [line for line in told.out.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 21
    assert warnings[0].startswith("warning: records.jsonl:1: skipped a line: expected a record of schema 1")
    assert warnings[-1] == "warning: 5 more lines skipped"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("runs=nowhere",), "runs must name folders with records.jsonl files below them; there is no nowhere"),
        (("runs=[results/runs,empty]",), "empty has none"),
        (("runs=",), "runs must have no empty items"),
        (("runs=torn",), "at least one readable record; torn/records.jsonl:1: skipped a line: "),
        (("out=table.csv",), "out must end in .parquet; got 'table.csv'"),
        (("out=folder.parquet",), "out must name files; folder.parquet is a folder"),
        (("into=x",), "key must be one of runs, out; got 'into'"),
        (("+hydra.callbacks.x._target_=os.system",), "key must be one of runs, out"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(street, arguments, said):
    for name in ("empty", "torn", "folder.parquet"):
        (street.folder / name).mkdir()
    (street.folder / "torn" / "records.jsonl").write_text("{")
    before = street.files()
    assert said in street.knock(main, *arguments).refusal
    assert street.files() == before


def test_help_is_help(street):
    told = street.knock(main, "--help")
    assert told.code == 0
    assert "out=results/records.parquet" in told.out


def test_neither_torch_nor_pandas_nor_hydra_is_needed(street):
    told = shell("-c", LEAN, cwd=street.folder)
    assert told.code == 0, told.err
    assert "3 rows of 2 files" in told.out
