"""``python -m experiments.run`` as a user types it."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from experiments import launcher
from experiments.door import Composed
from experiments.record import Measurement, apart
from experiments.records import load
from experiments.run import main
from tests.builders import ROOT, config
from tests.experiments.builders import SMALL, Answer, Street, shell
from variants.contract import plugin

ATTENTIONS = " ".join(config("attention"))
KINDS = ", ".join(plugin.kinds("attention"))

EIGHT_HEADS = ("model.num_attention_heads=8", "model.num_key_value_heads=4", "model.hidden_size=512")  # 9 never halve
SMALL_CACHE = """
import experiments.measuring.device as device
device._last_level_cache = lambda: 2**20  # five times this machine's own may be gigabytes
from experiments.run import main
main()
"""


def run(street: Street, *arguments: str) -> tuple[Measurement, ...]:
    """Rows of a run that must succeed."""
    answer = street.knock(main, *with_small(*arguments))
    assert answer.code == 0, answer
    return load(street.folder / "results").rows


def with_small(*arguments: str) -> tuple[str, ...]:
    """The arguments for a small model; argparse wants all overrides in one run, after or before the flags."""
    return (*arguments, *SMALL) if arguments and arguments[0].startswith("-") else (*SMALL, *arguments)


# what works


def test_one_series(street: Street) -> None:
    rows = run(street, "attention=mla", "backend=sdpa", "workload.context=[64,128]")
    assert [(r.attention, r.backend, r.context, r.scope, r.status) for r in rows] == [
        ("mla", "sdpa", c, s, "ok") for c in (64, 128) for s in ("attend", "step")
    ]
    assert {(r.study, r.model, r.dtype) for r in rows} == {(None, "SmolLM2-135M", "bf16")}
    assert [p for p in street.files() if p.count("/") < 3] == ["results", "results/runs", "results/runs/adhoc"]


def test_e03_rows_are_whole_where_nothing_can_be_plotted(street: Street) -> None:
    for plots in ("matplotlib", "seaborn", "pandas", "jinja2"):
        street.monkeypatch.setitem(sys.modules, plots, None)  # importing it is an error now
    rows = run(street, "attention=mha", "workload.context=[16]", "workload.scopes=[step]")
    assert [(r.attention, r.status) for r in rows] == [("mha", "ok")]


def test_a_sweep(street: Street) -> None:
    rows = run(street, "-m", "attention=mha,gqa,mqa,mla", "workload.context=[16]", "workload.scopes=[step]")
    assert [(r.attention, r.context) for r in sorted(rows, key=lambda r: r.attention)] == [
        (a, 16) for a in ("gqa", "mha", "mla", "mqa")
    ]
    assert len({r.series for r in rows}) == 4
    assert not [p for p in street.files() if p.endswith(".yaml")]  # nor any other file of Hydra's


@pytest.mark.parametrize(
    "arguments",
    [
        ("attention=glob(*)", *EIGHT_HEADS, "workload.context=16", "workload.scopes=step", "-m"),
        (
            "attention=choice(mla,mha,gqa,mqa,gta,gla)",
            *EIGHT_HEADS,
            "workload.context=16",
            "workload.scopes=step",
            "-m",
        ),
    ],
)
def test_other_ways_to_sweep(street: Street, arguments: tuple[str, ...]) -> None:
    rows = run(street, *arguments)
    assert Counter(r.attention for r in rows) == dict.fromkeys(config("attention"), 1)


def test_a_point_that_the_model_has_no_heads_for_is_an_error_row_beside_the_others(street: Street) -> None:
    answer = street.knock(main, *with_small("-m", "attention=gqa,gla", "workload.context=16", "workload.scopes=step"))
    rows = load(street.folder / "results").rows
    assert answer.code == 3
    assert {(r.attention, r.status) for r in rows} == {("gqa", "ok"), ("gla", "error")}
    assert (
        "num_latent_heads must be at least 1 and divide num_q_heads; got num_q_heads=9, num_latent_heads=2"
        in answer.err
    )


LAUNCHERS = [(), *(pytest.param((f"hydra/launcher={name}",), marks=pytest.mark.slow) for name in ("basic", "rounds"))]


@pytest.mark.parametrize("hydra_launcher", LAUNCHERS)
def test_the_quick_study_is_a_sweep_by_itself(street: Street, hydra_launcher: tuple[str, ...]) -> None:
    """Hydra's own launcher calls the door once per job: other calls, the same rows."""
    rows = run(street, "study=quick", "workload.context=[16,32]", *hydra_launcher)
    assert Counter((r.attention, r.context, r.scope, r.status) for r in rows) == {
        (a, c, s, "ok"): 1 for a in ("mha", "gqa", "mqa", "mla") for c in (16, 32) for s in ("attend", "step")
    }
    assert {r.study for r in rows} == {"quick"}
    assert {p.split("/")[2] for p in street.files() if p.count("/") > 1} == {"quick"}
    expected = ["study=quick", "'workload.context=[16,32]'", *hydra_launcher]
    assert {r.command for r in rows} == {" ".join(["python -m experiments.run", *SMALL, *expected])}


@pytest.mark.slow
def test_both_launchers_give_rows_of_the_same_keys(street: Street) -> None:
    arguments = ("-m", "attention=gqa,mla", "workload.context=16")
    ours, basic = (
        {
            r.key
            for r in run(street, *arguments, f"name={kind}", f"hydra/launcher={kind}")
            if f"name={kind}" in str(r.command)
        }
        for kind in ("rounds", "basic")
    )
    assert len(ours) == 4
    assert ours == basic


@pytest.mark.slow
def test_the_matrix_study_tries_every_attention_on_every_storage_and_backend(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those that a yaml of the user's own adds."""
    seen: list[Composed] = []

    def launch(configs: Sequence[Composed], command: str) -> int:
        seen.extend(configs)
        return 0

    monkeypatch.setattr(launcher, "launch", launch)
    (tmp_path / "attention").mkdir()
    (tmp_path / "attention" / "mine.yaml").write_text("kind: grouped\nnum_kv_heads: 4\nwindow: null\n")
    monkeypatch.setattr(sys, "argv", ["kvariants-run", "--config-dir", str(tmp_path), "study=backend_matrix"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(SystemExit):
        main()
    groups = ("attention", "storage", "backend")
    tried = Counter(tuple(c.choices[group] for group in groups) for c in seen)
    every = product([*config("attention"), "mine"], config("storage"), config("backend"))
    assert tried == dict.fromkeys(every, 1)
    assert {c.values["name"] for c in seen} == {"backend_matrix"}


def test_the_matrix_study_leaves_a_row_with_all_reasons_of_each_refusal(street: Street) -> None:
    small = ("workload.context=16", "workload.scopes=[attend]", "attention=gqa", "backend=sdpa,eager")
    rows = run(street, "study=backend_matrix", *small)
    told = {(r.storage, r.backend): r for r in rows}
    assert len(rows) == len(told) == 2 * len(config("storage"))
    assert told["paged", "eager"].status == "ok"
    ring = told["ring", "sdpa"]
    assert (ring.status, len(apart(str(ring.reason)))) == ("refused", 2)
    assert apart(str(ring.reason))[0] == told["ring", "eager"].reason


def test_the_study_may_be_overridden(street: Street) -> None:
    rows = run(street, "study=quick", "name=mine", "attention=mqa", "workload.context=16", "workload.scopes=step")
    assert [(r.attention, r.context) for r in rows] == [("mqa", 16)]
    assert street.files()[2].startswith("results/runs/mine")


# the same again, and before


@pytest.mark.parametrize("hydra_launcher", ["rounds", pytest.param("basic", marks=pytest.mark.slow)])
def test_the_same_command_again_measures_nothing(street: Street, hydra_launcher: str) -> None:
    arguments = ("-m", "attention=gqa,mla", "workload.context=16", f"hydra/launcher={hydra_launcher}")
    before = run(street, *arguments)
    assert run(street, *arguments) == before
    assert len(run(street, *arguments, "resume=all")) == 2 * len(before)
    said = street.knock(main, *with_small(*arguments, "resume=none")).refusal
    assert said.startswith("results/runs/adhoc already holds rows of this run, and resume=none")


@pytest.mark.parametrize("hydra_launcher", ["rounds", "basic"])
def test_jobs_of_one_sweep_are_no_rows_of_an_earlier_run(street: Street, hydra_launcher: str) -> None:
    arguments = ("-m", "attention=gqa,mla", "workload.context=16", "workload.scopes=step")
    assert len(run(street, *arguments, f"hydra/launcher={hydra_launcher}", "resume=none")) == 2


def test_a_plan_is_printed_and_nothing_is_written(street: Street) -> None:
    answer = street.knock(main, *with_small("study=quick", "workload.context=[16,32]", "plan=true"))
    assert (answer.code, answer.err) == (0, "")
    assert "8 points of 4 series: 0 are there, 8 to be measured" in answer.out
    assert "\x1b" not in answer.out
    assert street.files() == []


def test_a_plan_of_bad_input_is_refused_like_a_run(street: Street) -> None:
    assert street.knock(main, *with_small("plan=true", "workload.context=0")).refusal
    assert street.knock(main, *with_small("plan=maybe")).refusal == "plan must be true or false; got 'maybe'"
    assert street.files() == []


# what does not


BAD = {
    "heads not divisible": (
        ("attention.num_kv_heads=2",),
        "num_kv_heads must be at least 1 and divide num_q_heads; got num_q_heads=9, num_kv_heads=2",
    ),
    "unknown attention": (
        ("attention=nope",),
        f"In 'config': Could not find 'attention/nope' Available options in 'attention': {ATTENTIONS}",
    ),
    "unknown attention in a sweep": (
        ("-m", "attention=mha,nope"),
        f"In 'config': Could not find 'attention/nope' Available options in 'attention': {ATTENTIONS}",
    ),
    "context 12q": (("workload.context=12q",), "workload.context must be a whole number >= 1"),
    "context 0": (("workload.context=0",), "workload.context must be a whole number >= 1"),
    "no context": (("workload.context=[]",), "workload.context must not be empty; got []"),
    "misspelt key": (("workload.contxt=3",), "Could not override 'workload.contxt'."),
    "misspelt key, added": (("+workload.contxt=3",), "workload needs the options batch, context"),
    "misspelt group": (("atention=mla",), "Could not override 'atention'."),
    "a comma without -m": (("attention=mha,gqa",), "Ambiguous value for argument 'attention=mha,gqa'"),
    "unknown device": (("device.kind=tpu",), "device.kind must be one of auto, cpu, cuda"),
    "tp that splits no head": (("tp=2",), "tp must be at least 1 and divide num_q_heads; got num_q_heads=9, tp=2"),
    "tp that is no number": (("tp=two",), "tp must be a whole number >= 1; got 'two'"),
    "a group left out": (("~backend",), "config needs the group backend"),
    "no scopes": (("workload.scopes=[]",), "workload.scopes must not be empty"),
    "a name that is a path": (("name=../x",), "name must be letters, digits"),
    "an empty name": (("name=",), "name must be letters, digits"),
    "no name": (("name=null",), "name must be letters, digits"),
    "names swept": (("-m", "name=a,b"), "one run writes one folder, in one way: name cannot be swept"),
    "a kind that is a module": (("attention.kind=os",), f"attention kind must be one of {KINDS}; got 'os'"),
    "a kind that is a path": (("attention.kind=os.path",), f"attention kind must be one of {KINDS}"),
    "an unknown interpolation": (("name='${nope}'",), "Interpolation key 'nope' not found"),
    "a mode that does not exist": (("hydra.mode=FOO",), "Error merging override hydra.mode=FOO"),
    "an unknown flag": (("--loud",), "unrecognized arguments: --loud (flags stand before or after all overrides"),
    "a flag among overrides": (("a=1", "-m", "b=2"), "unrecognized arguments: b=2 (flags stand before or after all"),
    "two modes at once": (("--multirun", "--run"), "Only one of --run, --multirun"),
    "no such config folder": (("--config-dir", "nowhere"), "Additional config directory "),
    "a folder that cannot be made": (("results=/proc/nowhere",), "[Errno 2] No such file or directory"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_exit_code_2_and_no_file(street: Street, case: str) -> None:
    arguments, message = BAD[case]
    said = street.knock(main, *with_small(*arguments)).refusal
    assert said.startswith(message)
    assert street.files() == []


@pytest.mark.parametrize("text", ["a: [1", "a: b: c\n"])
def test_a_yaml_that_is_none_is_one_line(street: Street, text: str) -> None:
    (street.folder / "mine" / "study").mkdir(parents=True)
    (street.folder / "mine" / "study" / "broken.yaml").write_text(text)
    before = street.files()
    assert street.knock(main, "--config-dir", "mine", *SMALL, "study=broken").refusal
    assert street.files() == before


def test_a_misspelt_workload_in_a_study_of_the_users_is_no_silent_default(street: Street) -> None:
    (street.folder / "mine" / "study").mkdir(parents=True)
    (street.folder / "mine" / "study" / "s.yaml").write_text("# @package _global_\nworkload: {contxt: [1k]}\n")
    said = street.knock(main, "--config-dir", "mine", *SMALL, "study=s").refusal
    assert said.startswith("workload needs the options")


def test_a_folder_in_use_is_refused_before_anything_is_measured(street: Street) -> None:
    from experiments.runfolder import locked

    with locked(Path("results/runs/adhoc")):
        before = street.files()
        said = street.knock(main, *SMALL, "workload.context=16").refusal
        assert said.startswith(f"results/runs/adhoc is being written by another run (pid {os.getpid()})")
        assert "name=" in said
        assert street.files() == before


def test_an_error_of_ours_is_not_hidden(street: Street) -> None:
    """What the user cannot mend is a fault of the program: it must come out with its traceback."""

    def fault(*args: object) -> int:
        raise ZeroDivisionError("ours")

    street.monkeypatch.setattr(launcher, "launch", fault)
    street.monkeypatch.setattr(sys, "argv", ["kvariants-run"])
    street.monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ZeroDivisionError, match="ours"):
        main()


# in a process of its own


def test_help_needs_neither_torch_nor_pandas(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'pandas', 'numpy', 'matplotlib', 'rich']))\n"
    answer = shell("-c", blocked + "from experiments.run import main\nmain()", "--help", cwd=tmp_path)
    assert (answer.code, answer.err) == (0, "")
    for line in (
        "study=quick",
        f"attention: {', '.join(config('attention'))}",
        f"backend: {', '.join(config('backend'))}",
        "name=NAME",
    ):
        assert line in answer.out
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_is_told_without_torch_and_without_a_trace(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['torch'] = None\nfrom experiments.run import main\nmain()"
    for level in ("0", "1"):
        answer = shell("-c", blocked, "attention=nope", cwd=tmp_path, HYDRA_FULL_ERROR=level)
        assert answer.refusal.endswith(f"Available options in 'attention': {ATTENTIONS}")
    assert list(tmp_path.iterdir()) == []


def test_tab_completion_lists_the_choices(tmp_path: Path) -> None:
    typed = "kvariants-run attention="
    answer = shell(
        *("-m", "experiments.run", "-sc", "query=bash"), cwd=tmp_path, COMP_LINE=typed, COMP_POINT=str(len(typed))
    )
    assert answer.code == 0, answer
    assert answer.out.split() == [f"attention={name}" for name in config("attention")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_real_run_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The same door on the real machine, whose cache alone is pretended to be small, and its series in another one."""
    asked = ("attention=mla", "workload.context=[64,128]", "name=mine")
    answer = shell("-c", SMALL_CACHE, *SMALL, *asked, "isolation=process", cwd=tmp_path)
    assert answer.code == 0, answer
    assert answer.out == ""
    rows = load(tmp_path / "results" / "runs" / "mine").rows
    assert [(r.context, r.scope) for r in rows] == [(c, s) for c in (64, 128) for s in ("attend", "step")]
    assert all(r.status in ("ok", "quarantined") for r in rows), rows
    assert all((r.read_ceiling_gbps or 0) > 0.1 and (r.matmul_ceiling_tflops or 0) > 1e-4 for r in rows)
    assert all(r.commit and r.device and r.host for r in rows)


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    asked = ("timer.rounds=600", "workload.context=[16,32,64,128]", "isolation=process")
    command = [sys.executable, "-c", SMALL_CACHE, *SMALL, *asked]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background ignores it
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "gqa step 16" in line:
                break
        time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
        assert running.wait(60) == 130, rest
    assert "Traceback" not in rest
    assert "interrupted" in rest
    rows = load(tmp_path / "results").rows
    assert [r.status for r in rows[:2]] == ["ok", "ok"]
    assert [r.status for r in rows[-2:]] == ["interrupted", "interrupted"]


@pytest.mark.slow
def test_the_module_as_it_is_from_another_folder(tmp_path: Path) -> None:
    arguments = ("attention=mla", "backend=sdpa", "workload.context=[64,128]", "model=smollm2_135m", "device=cpu")
    answer: Answer = shell("-m", "experiments.run", *arguments, cwd=tmp_path)
    assert answer.code == 0, answer
    rows = load(tmp_path / "results" / "runs" / "adhoc").rows
    assert [(r.context, r.status) for r in rows] == [(64, "ok")] * 2 + [(128, "ok")] * 2
    assert {r.command for r in rows} == {
        "python -m experiments.run attention=mla backend=sdpa 'workload.context=[64,128]' model=smollm2_135m device=cpu"
    }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["results"]
