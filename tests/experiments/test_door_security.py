"""A config cannot run code: every way that Hydra offers is refused, and each of them would work without the refusal."""

import os
import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from experiments import door
from experiments.door import Composed, open_door
from experiments.foreign import FOREIGN
from tests.experiments.builders import Answer, Street, shell

MARKER = "ran"  # the folder that a payload makes
MKDIR = f"{{_target_: os.mkdir, path: {MARKER}}}"
LOGGING = f"{{version: 1, root: {{level: INFO}}, handlers: {{x: {{(): os.mkdir, path: {MARKER}}}}}}}"
GLOBAL = "# @package _global_\n"
HANDLER = "hydra.job_logging.handlers.x"
LOG_TO = (
    "++hydra.job_logging.root={level:INFO}",
    f"++{HANDLER}.class=logging.FileHandler",
    f"++{HANDLER}.filename={MARKER}",
)
JOBS = "hydra.overrides.task=[{}]".format(",".join(f"'{o}'" for o in ("attention=mha,mqa", *LOG_TO)))

Payload = tuple[tuple[str, ...], dict[str, str]]  # arguments, and the files of the user's own config folder
MINE = ("--config-dir", "mine")
PAYLOADS: dict[str, Payload] = {
    "a callback on the command line": (
        ("+hydra.callbacks.x._target_=os.mkdir", f"+hydra.callbacks.x.path={MARKER}"),
        {},
    ),
    "a callback as one value": ((f"+hydra.callbacks={{x:{{_target_:os.mkdir,path:{MARKER}}}}}",), {}),
    "a callback in the user's study": (
        (*MINE, "study=s"),
        {"study/s.yaml": f"{GLOBAL}hydra: {{callbacks: {{x: {MKDIR}}}}}\n"},
    ),
    "a callback in the user's model": (
        (*MINE, "model=m"),
        {"model/m.yaml": f"# @package hydra.callbacks\nx: {MKDIR}\n"},
    ),
    "a callback in a group of the user's": (
        (*MINE, "+extra@hydra.callbacks.x=e"),
        {"extra/e.yaml": f"_target_: os.mkdir\npath: {MARKER}\n"},
    ),
    "a callback of a hydra group": (
        (*MINE, "hydra/callbacks=c"),
        {"hydra/callbacks/c.yaml": f"x: {MKDIR}\n"},
    ),
    "a callback in what a study includes": (
        (*MINE, "study=s"),
        {
            "study/s.yaml": f"{GLOBAL}defaults:\n  - /extra@hydra.callbacks: e\n",
            "extra/e.yaml": f"x: {MKDIR}\n",
        },
    ),
    "callbacks found by a search path": (
        ("hydra.searchpath=[file://mine]", "study=s"),
        {"study/s.yaml": f"{GLOBAL}hydra: {{callbacks: {{x: {MKDIR}}}}}\n"},
    ),
    "a logging handler in the user's study": (
        (*MINE, "study=s"),
        {"study/s.yaml": f"{GLOBAL}hydra: {{job_logging: {LOGGING}}}\n"},
    ),
    "hydra's own logging": ((*MINE, "study=s"), {"study/s.yaml": f"{GLOBAL}hydra: {{hydra_logging: {LOGGING}}}\n"}),
    "a logging config of the user's": (
        (*MINE, "hydra/job_logging=j"),
        {"hydra/job_logging/j.yaml": f"{LOGGING}\n"},
    ),
    "a logging file on the command line": (LOG_TO, {}),
    "logging while help is shown": (("--help", *(o.replace("job_", "hydra_") for o in LOG_TO)), {}),
    "logging while Hydra's help is shown": (("--hydra-help", *(o.replace("job_", "hydra_") for o in LOG_TO)), {}),
    "logging of a study while help is shown": (
        ("--help", *MINE, "study=s"),
        {"study/s.yaml": f"{GLOBAL}hydra: {{hydra_logging: {LOGGING}}}\n"},
    ),
    "studies swept": (
        (*MINE, "-m", "study=s,t", "hydra/launcher=basic"),
        dict.fromkeys(("study/s.yaml", "study/t.yaml"), f"{GLOBAL}hydra: {{job_logging: {LOGGING}}}\n"),
    ),
    "studies swept by a pattern": (
        (*MINE, "-m", "study=glob(s*)", "hydra/launcher=basic"),
        {"study/s.yaml": f"{GLOBAL}hydra: {{job_logging: {LOGGING}}}\n"},
    ),
    "a sweep of one": (
        (*MINE, "study=s", "hydra/launcher=basic"),
        {
            "study/s.yaml": f"{GLOBAL}hydra: {{mode: MULTIRUN, sweeper: {{params: {{model: m}}}}}}\n",
            "model/m.yaml": f"{GLOBAL}hydra: {{job_logging: {LOGGING}}}\n",
        },
    ),
    "hydra's keys among a sweep's parameters": (
        (*MINE, "study=s", "hydra/launcher=basic"),
        {
            "study/s.yaml": f"{GLOBAL}hydra: {{mode: MULTIRUN, sweeper: {{params: {{hydra/job_logging: j}}}}}}\n",
            "hydra/job_logging/j.yaml": f"{LOGGING}\n",
        },
    ),
    "a group swept into hydra's node": (
        (*MINE, "-m", "+extra@hydra.job_logging=e,f", "hydra/launcher=basic"),
        dict.fromkeys(("extra/e.yaml", "extra/f.yaml"), f"{LOGGING}\n"),
    ),
    "overrides that nobody typed": (("-m", "hydra/launcher=basic", JOBS), {}),
    "a pickle": (("--experimental-rerun", "mine/job.pickle"), {}),
    "another config of the user's": (
        (*MINE, "--config-name", "own"),
        {"own.yaml": f"defaults: [config, _self_]\nhydra: {{callbacks: {{x: {MKDIR}}}}}\n"},
    ),
    "another config folder of the user's": (
        ("--config-path", "{folder}/mine"),
        {"config.yaml": f"hydra: {{callbacks: {{x: {MKDIR}}}}}\n"},
    ),
}
REFUSED_ANYWAY: dict[str, Payload] = {  # Hydra itself takes these from no foreign module; they are none of a user's
    "a sweeper": (("-m", "attention=mha,mqa", "hydra.sweeper._target_=os.mkdir"), {}),
    "a launcher": (("-m", "attention=mha,mqa", "hydra.launcher._target_=os.mkdir"), {}),
    "a launcher in the user's study": (
        (*MINE, "study=s"),
        {"study/s.yaml": f"{GLOBAL}hydra: {{mode: MULTIRUN, launcher: {{_target_: os.mkdir}}}}\n"},
    ),
    "our launcher's name on another": (
        (*MINE, "-m", "hydra/launcher=basic"),
        {"hydra/launcher/basic.yaml": "_target_: os.mkdir\n"},
    ),
    "a launcher of the user's": ((*MINE, "hydra/launcher=l"), {"hydra/launcher/l.yaml": "_target_: os.mkdir\n"}),
    "environment variables": (("+hydra.job.env_set.LD_PRELOAD=x.so",), {}),
    "environment variables swept": (
        (*MINE, "-m", "study=s,t"),
        dict.fromkeys(("study/s.yaml", "study/t.yaml"), f"{GLOBAL}hydra: {{job: {{env_set: {{A: b}}}}}}\n"),
    ),
    "a working directory": (("hydra.job.chdir=true",), {}),
    "hydra's keys swept": (("-m", "hydra.verbose=true,false"), {}),
    "hydra's groups swept": (("-m", "hydra/job_logging=none,disabled"), {}),
    "callbacks swept": (("-m", "+hydra.callbacks.x._target_=os.mkdir,os.rmdir"), {}),
    "logging while plug-ins are listed": (("--info", "plugins", *(o.replace("job_", "hydra_") for o in LOG_TO)), {}),
    "logging while the config is shown": (("--cfg", "job", *(o.replace("job_", "hydra_") for o in LOG_TO)), {}),
    "an output folder": (("hydra.output_subdir=.hydra",), {}),
    "the whole node": (("hydra={verbose:true}",), {}),
    "another search path": (("hydra.searchpath=[file://mine]",), {"study/x.yaml": GLOBAL}),
    "the help text": (("hydra.help.template='$CONFIG'",), {}),
}


class Touch:
    """What --experimental-rerun would load: unpickling it makes the marker."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (MARKER,)


def lay_out(folder: Path, payload: Payload) -> tuple[str, ...]:
    """Write a payload's files and return its arguments."""
    arguments, files = payload
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "job.pickle").write_bytes(pickle.dumps(Touch()))
    for name, text in files.items():
        (folder / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "mine" / name).write_text(text)
    return tuple(a.replace("{folder}", str(folder)) for a in arguments)


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Street]:
    before = sys.path.copy()
    yield Street(tmp_path, monkeypatch, capfd)
    sys.path[:] = before


def knock(street: Street, *arguments: str) -> tuple[Answer, list[int]]:
    """The answer, and how many configs each call of the task was given."""
    calls: list[int] = []

    def task(configs: Sequence[Composed]) -> int:
        calls.append(len(configs))
        return 0

    return street.knock(lambda: open_door("config", task), *arguments), calls


@pytest.mark.filterwarnings("ignore:(?s).*is validated against ConfigStore schema:UserWarning")  # of a payload's file
@pytest.mark.parametrize("name", [*PAYLOADS, *REFUSED_ANYWAY])
def test_code_in_a_config_is_refused_in_one_line(street: Street, name: str) -> None:
    arguments = lay_out(street.folder, {**PAYLOADS, **REFUSED_ANYWAY}[name])
    before = street.files()
    answer, calls = knock(street, *arguments)
    assert answer.refusal
    assert calls == []
    assert street.files() == before
    assert MARKER not in before


def test_the_reports_door_is_as_careful(street: Street) -> None:
    for arguments, code in ((("runs=x",), 0), (PAYLOADS["a callback as one value"][0], 2)):
        answer = street.knock(lambda: open_door("report", lambda configs: 0), *arguments)
        assert answer.code == code, answer
    assert street.files() == []


def test_a_refusal_says_what_may_be_set(street: Street) -> None:
    answer, _ = knock(street, "+hydra.callbacks.x._target_=os.mkdir")
    assert answer.refusal == (
        "hydra.callbacks.x may not be set: what is under hydra can run code; only hydra.mode, hydra.sweeper.params, "
        "hydra.run.dir, hydra.sweep.dir, hydra.sweep.subdir and hydra/launcher={rounds,basic} may"
    )


UNGUARDED = """
import os, sys, traceback
from experiments import door
door._refuse_code = lambda config_name, launchers: None
os.environ["HYDRA_FULL_ERROR"] = "1"
for line in sys.stdin.read().splitlines():
    folder, *arguments = line.split("\\t")
    os.chdir(folder)
    sys.argv = ["kvariants-run", *arguments]
    try:
        door.open_door("config", lambda configs: 0)
    except SystemExit:
        pass
    except Exception:
        traceback.print_exc()
"""


@pytest.mark.slow
def test_each_of_these_would_run_if_the_door_did_not_refuse_it(tmp_path: Path) -> None:
    """Else the tests above would pass for payloads that do nothing."""
    lines = []
    for index, payload in enumerate(PAYLOADS.values()):
        folder = tmp_path / str(index)
        lines.append("\t".join((str(folder), *lay_out(folder, payload))))
    script = tmp_path / "unguarded.py"
    script.write_text(UNGUARDED.replace("sys.stdin.read()", repr("\n".join(lines))))
    answer = shell(str(script), cwd=tmp_path)
    harmless = [name for i, name in enumerate(PAYLOADS) if not (tmp_path / str(i) / MARKER).exists()]
    assert harmless == [], answer.err


def test_a_config_of_the_users_that_is_called_like_ours_does_not_replace_it(street: Street) -> None:
    files = {"config.yaml": f"hydra: {{callbacks: {{x: {MKDIR}}}}}\n"}
    files["workload/default.yaml"] = f"# @package hydra.callbacks\nx: {MKDIR}\n"
    files["hydra/job_logging/none.yaml"] = f"{LOGGING}\n"
    arguments = lay_out(street.folder, ((*MINE, "name=x"), files))
    before = street.files()
    answer, calls = knock(street, *arguments)
    assert answer in (Answer(0, "", ""), Answer(2, "", answer.err))
    assert street.files() == before
    assert len(calls) <= 1


# what may be set still works


@pytest.mark.parametrize(
    ("arguments", "calls"),
    [
        ((), [1]),
        (("hydra.mode=RUN",), [1]),
        (("hydra.mode=MULTIRUN", "attention=mha,mqa"), [2]),
        (("study=quick", "++hydra.sweeper.params.timer='wall,auto'"), [8]),
        (("-m", "attention=mha,mqa", "hydra/launcher=rounds"), [2]),
        (("-m", "attention=mha,mqa", "hydra/launcher=basic"), [1, 1]),
        (("-m", "attention=mha,mqa", "hydra.sweep.dir=sweeps", "hydra/launcher=basic"), [1, 1]),
        (("study=quick",), [4]),
        (("study=quick", "hydra/launcher=basic"), [1, 1, 1, 1]),
        (("study=quick", "attention=mla,mha"), [2]),
    ],
)
def test_harmless_settings_are_not_refused(street: Street, arguments: tuple[str, ...], calls: list[int]) -> None:
    answer, seen = knock(street, *arguments)
    assert answer == Answer(0, "", "")
    assert seen == calls


def test_hydras_folders_may_be_moved(street: Street) -> None:
    assert knock(street, "hydra.run.dir=elsewhere")[0].code == 0
    assert street.files() == ["elsewhere"]
    assert knock(street, "-m", "attention=mha,mqa", "hydra.sweep.dir=sweeps")[0].code == 0
    assert street.files() == ["elsewhere"]
    assert knock(street, "-m", "attention=mha,mqa", "hydra.sweep.dir=sweeps", "hydra/launcher=basic")[0].code == 0
    assert street.files() == ["elsewhere", "sweeps"]


def test_a_harmless_folder_of_the_users_is_welcome(street: Street) -> None:
    sweep = "hydra: {mode: MULTIRUN, sweeper: {params: {attention: 'mha,mqa'}}}\n"
    files = {"study/mine.yaml": f"{GLOBAL}name: mine\n{sweep}", "model/small.yaml": "name: small\n"}
    for launcher, expected in (("rounds", [2]), ("basic", [1, 1])):
        arguments = lay_out(street.folder / launcher, ((), files))
        assert arguments == ()
        answer, calls = knock(
            street, "--config-dir", f"{launcher}/mine", "study=mine", "model=small", f"hydra/launcher={launcher}"
        )
        assert (answer, calls) == (Answer(0, "", ""), expected)


@pytest.mark.parametrize("arguments", [("--help",), ("--help", "study=quick"), ("--hydra-help",), ("--info",)])
def test_harmless_help_is_shown(street: Street, arguments: tuple[str, ...]) -> None:
    answer, calls = knock(street, *arguments)
    assert answer.code == 0
    assert ("kvariants-run measures" in answer.out) == (arguments[0] == "--help")
    assert len(answer.out) > 200
    assert calls == []
    assert street.files() == []


def test_what_is_shipped_is_what_the_guard_compares_with() -> None:
    """The conf of the checkout itself sets under hydra nothing that could run code but launchers: ours, and Hydra's."""
    texts = {p: p.read_text() for p in door.CONF.rglob("*.yaml")}
    assert texts
    for path, text in texts.items():
        targets = re.findall(r"^_target_: (\S+)$", text, re.MULTILINE)
        assert text.count("_target_") == len(targets)
        if targets:
            assert path.parent == door.CONF / "hydra" / "launcher"
            assert path.stem in FOREIGN
            assert [target.startswith("hydra_plugins.") for target in targets] == [True]
        assert "callbacks" not in text, path
