"""Public bug reports on sweeps, configs and resuming (CASES.md, section d), one test or more per case.

D16 (configs in the wheel) stands beside the wheel, in tests/test_project.py; kills at random moments are slow tests of
their own.
"""

import csv
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments import cache as cache_door
from experiments import collect as collect_door
from experiments import launcher
from experiments.launcher import launch
from experiments.measuring import prepare as preparing
from experiments.measuring import worker as working
from experiments.measuring.measure import measure_point
from experiments.measuring.series import Series
from experiments.measuring.timed import Measured
from experiments.plain import UNCLEAN
from experiments.record import Measurement
from experiments.records import load
from experiments.run import main
from tests.builders import ROOT
from tests.experiments.builders import SMALL, TINY, Street, composed, device, pretend
from tests.experiments.telling import rows as telling
from tests.golden.models import MODELS

pytestmark = pytest.mark.usefixtures("street")

EIGHT: dict[str, Any] = {**TINY, "name": "eight", "hidden_size": 128, "num_attention_heads": 8}


def run(street: Street, *arguments: str) -> tuple[Measurement, ...]:
    """Rows of a run that must succeed; argparse wants all overrides in one run, after or before the flags."""
    flags_first = arguments[0].startswith("-")
    answer = street.knock(main, *((*arguments, *SMALL) if flags_first else (*SMALL, *arguments)))
    assert answer.code == 0, answer
    return load(street.folder / "results").rows


# D01


@pytest.mark.slow
def test_d01_one_config_that_cannot_be_built_is_a_row_and_the_others_run(capfd: pytest.CaptureFixture[str]) -> None:
    configs = [composed("gqa", model=EIGHT, options={"num_kv_heads": n}, scopes=["step"]) for n in (2, 3, 4)]
    assert launch(configs, "") == UNCLEAN == 3
    rows = load(Path("results")).rows
    assert Counter(r.status for r in rows) == {"ok": 4, "error": 1}
    assert {r.num_kv_heads for r in rows if r.status == "ok"} == {2, 4}
    (bad,) = (r for r in rows if r.status == "error")
    assert bad.reason == "num_kv_heads must be at least 1 and divide num_q_heads; got num_q_heads=8, num_kv_heads=3"
    assert bad.latency_us_p50 is None
    assert (bad.model, bad.attention) == ("eight", "gqa")
    said = capfd.readouterr().err
    assert said.index("num_kv_heads=3") < said.rindex("gqa-contiguous-sdpa")  # before the next series starts
    assert "rows: 4 ok, 1 error; in results/runs/test" in said


def test_d01_memory_that_runs_out_in_one_series_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    real = preparing.prepare

    def prepare(made: Series, *args: Any) -> Any:
        if made.labels.attention == "mha":
            raise MemoryError("no more")
        return real(made, *args)

    monkeypatch.setattr(working, "prepare", prepare)
    assert launch([composed(a, scopes=["step"], context=16) for a in ("gqa", "mha", "mqa")], "") == 3
    assert Counter((r.attention, r.status, r.reason) for r in load(Path("results")).rows) == {
        ("gqa", "ok", None): 1,
        ("mha", "oom", "out of memory: no more"): 1,
        ("mqa", "ok", None): 1,
    }


def test_d01_a_bad_config_of_a_sweep_is_a_row(street: Street) -> None:
    answer = street.knock(main, "-m", *SMALL, "attention.num_kv_heads=3,2,9", "workload.context=16", "tp=1")
    assert answer.code == 3
    rows = load(street.folder / "results").rows
    assert Counter((r.num_kv_heads, r.status) for r in rows) == {(3, "ok"): 2, (9, "ok"): 2, (None, "error"): 1}
    assert "got num_q_heads=9, num_kv_heads=2" in answer.err
    assert "rows: 4 ok, 1 error; in results/runs/adhoc" in answer.err


# D03

LOCK = """
import sys, time
from pathlib import Path
from experiments.runfolder import locked, run_folder
sys.stdin.readline()
try:
    with locked(run_folder("results", sys.argv[1])):
        print("held", flush=True)
        sys.stdin.readline()
except ValueError as error:
    print(error, flush=True)
"""


def start(script: str, *names: str) -> list[subprocess.Popen[str]]:
    """A process per name, waiting for a line."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", script]
    return [subprocess.Popen([*command, name], env={"PYTHONPATH": str(ROOT)}, **pipes) for name in names]


def answers(processes: list[subprocess.Popen[str]]) -> list[str]:
    """The first line of each, once all have been told to go in the same moment."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.stdout.readline() for process in processes if process.stdout is not None]
    for process in processes:
        process.communicate("end\n")
    return said


def test_d03_of_runs_of_one_name_one_has_the_folder_and_the_others_say_so() -> None:
    said = answers(start(LOCK, *["same"] * 4))
    assert said.count("held\n") == 1
    refusals = [line for line in said if line != "held\n"]
    assert len(refusals) == 3
    assert all("is being written by another run" in line and "name=" in line for line in refusals)


def test_d03_runs_of_different_names_have_a_folder_each() -> None:
    names = [f"run{i}" for i in range(4)]
    assert answers(start(LOCK, *names)) == ["held\n"] * 4
    assert sorted(p.name for p in Path("results/runs").iterdir()) == names


# D05

KILLED = """
import itertools, os, signal
import pytest
from experiments import launcher
from experiments.measuring.measure import measure_point
from tests.experiments.builders import OneBench, composed, device, pretend
patch, number = pytest.MonkeyPatch(), itertools.count(1)
def killed(*args):
    return os.kill(os.getpid(), signal.SIGKILL) if next(number) == 4 else measure_point(*args)
pretend(device(), patch)
patch.setattr(launcher, "Benches", OneBench)
patch.setattr(launcher, "measure_point", killed)
launcher.launch([composed(context=[16, 32, 48, 64, 80, 96], scopes=["step"], timer={"threads": 1})], "")
"""


@pytest.mark.slow
def test_d05_a_killed_sweep_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the 4th of 6 points: 3 are run; then of 7 in another order exactly the new one."""
    killed = subprocess.run([sys.executable, "-c", KILLED], env={"PYTHONPATH": str(ROOT)}, check=False)
    assert killed.returncode == -9
    before = load(Path("results")).rows
    assert [row.context for row in before] == [16, 32, 48]
    measured: list[int] = []
    one_thread: dict[str, Any] = {"scopes": ["step"], "timer": {"threads": 1}}

    def noted(entrants: Any, *rest: Any) -> list[Measured]:
        measured.extend(entrant.where.point.context for entrant in entrants)
        return measure_point(entrants, *rest)

    monkeypatch.setattr(launcher, "measure_point", noted)
    assert launch([composed(context=[16, 32, 48, 64, 80, 96], **one_thread)], "") == 0
    assert measured == [64, 80, 96, 64]  # the last: the first point of this run once more, to see whether it holds
    measured.clear()
    assert launch([composed(context=[112, 96, 80, 64, 48, 32, 16], **one_thread)], "") == 0
    assert measured == [112]
    rows = load(Path("results")).rows
    assert Counter(row.context for row in rows) == dict.fromkeys(range(16, 113, 16), 1)
    assert rows[:3] == before


# D07


@pytest.mark.parametrize("results", ["tmp dir/a=b,c#1/конфиг", "a%b@c*d|e", "with 'quotes'"])
def test_d07_special_characters_work_in_quotes(street: Street, results: str) -> None:
    answer = street.knock(main, *SMALL, f'results="{results}"', "workload.context=16", "workload.scopes=step")
    assert answer.code == 0, answer
    assert len(load(street.folder / results).rows) == 1


@pytest.mark.parametrize("value", ["a=b", "tmp dir/конфиг"])
def test_d07_without_quotes_the_error_shows_them(street: Street, value: str) -> None:
    said = street.knock(main, f"results={value}").refusal
    assert said.endswith(f"""(special characters need quotes: 'results="{value}"')""")
    assert street.files() == []


def test_d07_a_file_with_special_characters_in_its_path(street: Street) -> None:
    file = street.folder / "tmp dir" / "a=b,c#1" / "конфиг.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(MODELS["Llama-3.1-8B"].config))
    answer = street.knock(cache_door.main, f"config={file.relative_to(street.folder)}")
    assert answer.code == 0, answer
    assert "131072" in answer.out


# D09


def test_d09_counts_on_the_command_line_and_in_a_sweep(street: Street) -> None:
    pretend(device(free=10), street.monkeypatch)
    listed = run(street, "workload.context=[1e5,1k,131072,128k,1_000,'64']", "workload.scopes=step", "name=listed")
    assert [r.context for r in listed] == [100_000, 1024, 131_072, 1000, 64]  # 128k is 131072, once
    assert {r.status for r in listed} == {"too_large"}
    swept = run(street, "-m", "workload.context=128k,1e5", "workload.scopes=step", "name=swept")
    assert [r.context for r in swept[-2:]] == [131_072, 100_000]


@pytest.mark.parametrize("typed", ["2.7", "-1", "nan", "0x10", "true", "''"])
def test_d09_what_is_no_count_is_refused_by_value(street: Street, typed: str) -> None:
    said = street.knock(main, *SMALL, f"workload.context={typed}").refusal
    assert said.startswith("workload.context must be a whole number >= 1, optionally with k (1024) or M (1048576); got")
    assert street.files() == []


def test_d09_counts_and_names_in_yaml(street: Street) -> None:
    study = street.folder / "mine" / "study"
    study.mkdir(parents=True)
    (study / "s.yaml").write_text(
        "# @package _global_\nname: 'once'\nworkload: {context: [1e5, 1_000, 128k], scopes: [step]}\n"
        "model: {name: '1e234'}\n"
    )
    pretend(device(free=10), street.monkeypatch)
    rows = run(street, "--config-dir", "mine", "study=s")
    assert [r.context for r in rows] == [100_000, 1000, 131_072]
    assert {r.model for r in rows} == {"1e234"}  # a name stays text


# D10


@pytest.mark.parametrize("sweep", [(), ("-m", "attention=gqa,mqa")])
@pytest.mark.slow
def test_d10_results_go_where_the_command_was_typed(street: Street, sweep: tuple[str, ...]) -> None:
    small = ("workload.context=16", "workload.scopes=step")
    run(street, *sweep, *small) if sweep else run(street, *small)
    assert (street.folder / "results" / "runs" / "adhoc").is_dir()
    answer = street.knock(main, *sweep, *SMALL, *small, "results=../elsewhere/here")
    assert answer.code == 0
    assert (street.folder.parent / "elsewhere" / "here" / "runs" / "adhoc").is_dir()


def test_d10_files_are_looked_for_where_the_command_was_typed(street: Street) -> None:
    inner = street.folder / "inner"
    inner.mkdir()
    (street.folder / "a.json").write_text(json.dumps(MODELS["Llama-3.1-8B"].config))
    street.monkeypatch.chdir(inner)
    assert street.knock(cache_door.main, "config=../a.json").code == 0
    said = street.knock(cache_door.main, "config=../b.json").refusal
    assert said == f"config must be a file or a preset; there is no {inner}/../b.json"


def test_d10_a_change_of_directory_is_refused(street: Street) -> None:
    assert "hydra.job.chdir may not be set" in street.knock(main, "hydra.job.chdir=true").refusal


# D11

WRITER = """
import sys
from dataclasses import replace
from experiments.record import Measurement
from experiments.runfolder import locked, run_folder, store
row = Measurement.from_json(open("row.json").read())
sys.stdin.readline()
folder = run_folder("results", sys.argv[1])
with locked(folder):
    for number in range(50):
        store(folder, (replace(row, key=f"{sys.argv[1]}-{number}", series="tiny"),), {})
print("done", flush=True)
"""


def test_d11_many_writers_lose_no_row(street: Street) -> None:
    """8 processes x 50 rows, each in a folder of its own, merged afterwards."""
    (street.folder / "row.json").write_text(telling.row().to_json())
    assert answers(start(WRITER, *(f"writer{i}" for i in range(8)))) == ["done\n"] * 8
    assert street.knock(collect_door.main).code == 0
    with (street.folder / "results" / "records.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    key = lines[0].index("key")
    assert len(lines) == 401
    assert len({line[key] for line in lines[1:]}) == 400
    assert "key" not in {line[key] for line in lines[1:]}  # one header


# D12


@pytest.mark.parametrize(
    ("arguments", "contexts"),
    [
        (("workload.context=[3,17,64]",), [[3, 17, 64]]),
        (("-m", "workload.context=[3],[17,64]"), [[3], [17, 64]]),
    ],
)
@pytest.mark.slow
def test_d12_a_list_is_one_series_and_a_sweep_of_lists_is_several(
    street: Street, arguments: tuple[str, ...], contexts: list[list[int]]
) -> None:
    rows = run(street, *arguments, "workload.scopes=step")
    assert [r.context for r in rows] == [c for part in contexts for c in part]


def test_d12_a_comma_without_m_is_an_error_that_says_what_to_do(street: Street) -> None:
    said = street.knock(main, "workload.context=3,17").refusal
    assert said.startswith("Ambiguous value for argument 'workload.context=3,17' 1. To use it as a list, use key=[")
    assert "--multirun" in said
    assert street.files() == []


# D14


@pytest.mark.parametrize("off", ["null", "off", "no", "none", "'off'"])
def test_d14_every_word_for_off_means_no_quantisation(street: Street, off: str) -> None:
    rows = run(street, f"workload.kv_dtype={off}", "workload.context=16", "workload.scopes=step")
    assert {(r.dtype, r.kv_dtype, r.status) for r in rows} == {("bf16", "bf16", "ok")}


@pytest.mark.parametrize("off", ["null", "off", "no", "'off'", "~"])
def test_d14_also_in_yaml_which_reads_some_of_them_as_false(street: Street, off: str) -> None:
    study = street.folder / "mine" / "study"
    study.mkdir(parents=True)
    (study / "s.yaml").write_text(
        f"# @package _global_\nworkload: {{context: 16, scopes: [step], kv_dtype: {off}}}\n"
        "attention: {window: null}\n"
    )
    (row,) = run(street, "--config-dir", "mine", "study=s")
    assert (row.kv_dtype, row.window, row.status) == ("bf16", None, "ok")


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("workload.kv_dtype=on", "workload.kv_dtype: dtype must be one of fp64, fp32"),
        ("workload.dtype=off", "workload.dtype: dtype must be one of fp64, fp32"),
        ("attention.window=off", "window must be a whole number >= 1; got 'off'"),
        ("attention.window=0", "window must be a whole number >= 1; got 0"),
        ("storage.page_size=0", "page_size must be a whole number >= 1; got 0"),
        ("storage.page_size=null", "page_size must be a whole number >= 1; got None"),
        ("storage.page_size=off", "page_size must be a whole number >= 1; got 'off'"),
    ],
)
def test_d14_other_words_are_refused_with_the_name_of_the_key(street: Street, typed: str, message: str) -> None:
    assert street.knock(main, *SMALL, "storage=paged", typed).refusal.startswith(message)


@pytest.mark.slow
def test_d14_pages_or_none_are_two_storages_and_the_row_says_which(street: Street) -> None:
    small = ("workload.context=16", "workload.scopes=step", "backend=eager")
    run(street, *small, "storage=contiguous")
    rows = run(street, *small, "storage=paged", "storage.page_size=8")
    assert {(r.storage, r.page_size) for r in rows} == {("contiguous", None), ("paged", 8)}
