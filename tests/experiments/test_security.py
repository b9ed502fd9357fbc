"""Nothing that a person is handed - a config, records, samples, a model's folder - runs code or writes elsewhere."""

import ast
import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from experiments import bench, cache, collect, compare, doctor, gpu, parallel, predict, report, run
from experiments.measuring.series import Labels
from experiments.records import RECORDS
from tests.builders import ROOT
from tests.experiments.builders import Street
from tests.experiments.telling.comparing.runs import keep, point

MARKER = "ran"
MKDIR = f"{{_target_: os.mkdir, path: {MARKER}}}"
WITH_HYDRA: Mapping[str, Callable[[], None]] = {
    "run": run.main,
    "predict": predict.main,
    "report": report.main,
    "compare": compare.main,
    "doctor": doctor.main,
}
PLAIN: Mapping[str, Callable[[], None]] = {
    "cache": cache.main,
    "collect": collect.main,
    "parallel": parallel.main,
    "bench": bench.main,
    "gpu": gpu.main,
}
CALLS = {"eval", "exec", "compile", "__import__"}  # as plain names: model.eval() and re.compile are something else
MODULES = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
UNSAFE = {
    ("yaml", "load"),
    ("yaml", "unsafe_load"),
    ("yaml", "full_load"),
    ("torch", "load"),
    ("os", "system"),
    ("os", "popen"),
    ("hydra", "utils"),
}


class Touch:
    """Unpickling it makes the marker."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (MARKER,)


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Street]:
    street = Street(tmp_path, monkeypatch, capfd)
    yield street
    assert MARKER not in {path.name for path in tmp_path.rglob("*")}


def sources() -> list[Path]:
    return [path for folder in ("experiments", "variants", "hydra_plugins") for path in (ROOT / folder).rglob("*.py")]


def dangers(text: str) -> list[str]:
    """What a source calls that could run what it is handed."""
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(name)
            case ast.Attribute(value=ast.Name(id=module), attr=name) if (module, name) in UNSAFE:
                found.append(f"{module}.{name}")
            case ast.Import(names=names) if MODULES & {alias.name.split(".")[0] for alias in names}:
                found.append(names[0].name)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in MODULES:
                found.append(module)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="load"), keywords=keywords):
                found += [] if _is(keywords, "allow_pickle", False) else ["np.load"]
            case ast.keyword(arg="shell" | "trust_remote_code" | "allow_pickle", value=ast.Constant(value=True)):
                found.append(str(node.arg))
    return found


def _is(keywords: list[ast.keyword], name: str, value: object) -> bool:
    return any(k.arg == name and isinstance(k.value, ast.Constant) and k.value.value is value for k in keywords)


def test_no_door_calls_what_could_run_its_input() -> None:
    """All doors, the ones of the GPU and of the benchmark among them, and everything below them."""
    files = sources()
    assert len(files) > 200
    found = {str(path.relative_to(ROOT)): dangers(path.read_text(encoding="utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "exec(x)",
        "import pickle",
        "from joblib import load",
        "yaml.load(x)",
        "torch.load(x)",
        "np.load(x)",
        "np.load(x, allow_pickle=True)",
        "subprocess.run(x, shell=True)",
        "AutoConfig.from_pretrained(x, trust_remote_code=True)",
        "hydra.utils.instantiate(x)",
    ],
)
def test_such_a_call_would_be_found(text: str) -> None:
    assert dangers(text)


@pytest.mark.parametrize("door", WITH_HYDRA)
@pytest.mark.parametrize(
    "arguments",
    [
        (f"+hydra.callbacks={{x:{{_target_:os.mkdir,path:{MARKER}}}}}",),
        (f"++hydra.job_logging={{version:1,root:{{level:INFO}},handlers:{{x:{{(): os.mkdir,path:{MARKER}}}}}}}",),
        ("--experimental-rerun", "job.pickle"),
        ("-m", "hydra/launcher=ray_aws"),
        ("hydra.sweeper._target_=os.mkdir",),
    ],
)
def test_no_door_with_hydra_runs_code_of_a_config(street: Street, door: str, arguments: tuple[str, ...]) -> None:
    (street.folder / "job.pickle").write_bytes(pickle.dumps(Touch()))
    assert street.knock(WITH_HYDRA[door], *arguments).refusal
    assert street.files() == ["job.pickle"]


@pytest.mark.parametrize("door", PLAIN)
@pytest.mark.parametrize(
    "argument", [f"_target_={MKDIR}", "hydra.job_logging=x", f"config=!!python/name:os.mkdir {MARKER}"]
)
def test_no_plain_door_knows_such_words(street: Street, door: str, argument: str) -> None:
    assert street.knock(PLAIN[door], argument).refusal
    assert street.files() == []


@pytest.mark.parametrize("door", ["run", "predict", "report"])
def test_tags_of_python_in_a_yaml_are_no_values(street: Street, door: str) -> None:
    group = {"run": "model", "predict": "device", "report": "report"}[door]
    (street.folder / "mine" / group).mkdir(parents=True)
    (street.folder / "mine" / group / "x.yaml").write_text(f"name: !!python/object/apply:os.mkdir [{MARKER}]\n")
    before = street.files()
    assert (
        "could not determine a constructor"
        in street.knock(WITH_HYDRA[door], "--config-dir", "mine", f"{group}=x").refusal
    )
    assert street.files() == before


def test_a_target_among_a_groups_own_options_is_an_unknown_option(street: Street) -> None:
    for key in ("backend", "attention", "storage"):
        answer = street.knock(run.main, f"+{key}._target_=os.mkdir", "device=cpu")
        assert "_target_" in answer.refusal
    assert street.files() == []


def test_samples_are_numbers_or_nothing(street: Street) -> None:
    for side in ("a", "b"):
        keep(street.folder / side, point(us=100.0))
        for path in (street.folder / side).rglob("*.npy"):
            np.save(path, np.array([Touch()], dtype=object), allow_pickle=True)
    assert street.knock(compare.main, "a=a", "b=b").code == 0


@pytest.mark.parametrize(
    "line", [f'{{"_target_": "os.mkdir", "path": "{MARKER}"}}', f"!!python/object/apply:os.mkdir [{MARKER}]"]
)
def test_a_line_of_records_is_a_row_or_skipped(street: Street, line: str) -> None:
    keep(street.folder / "a", point(us=100.0))
    keep(street.folder / "b", point(us=100.0))
    for path in street.folder.rglob(RECORDS):
        path.write_text(path.read_text() + line + "\n" + pickle.dumps(Touch(), protocol=0).decode() + "\n")
    for door, arguments in (
        (collect.main, ("runs=a", "out=x.parquet")),
        (compare.main, ("a=a", "b=b")),
        (report.main, ("runs=a", "out=page")),
    ):
        answer = street.knock(door, *arguments)
        assert answer.code == 0
        assert "skipped a line" in answer.out + answer.err


def test_a_models_folder_brings_numbers_and_no_code(street: Street) -> None:
    model = street.folder / "model"
    model.mkdir()
    (model / "modeling_x.py").write_text(f"import os\nos.mkdir({MARKER!r})\n")
    (model / "config.json").write_text(
        json.dumps({"model_type": "x", "auto_map": {"AutoConfig": "modeling_x.XConfig"}, "trust_remote_code": True})
    )
    assert street.knock(cache.main, "config=model").code != 0


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ".x", "-x", "''", "null"])
@pytest.mark.slow
def test_rows_stay_below_the_results_folder(street: Street, name: str) -> None:
    assert street.knock(run.main, f"name={name}", "device=cpu").refusal.startswith("name must be ")
    assert street.knock(run.main, "-m", "attention=mha,mqa", f"name={name}", "device=cpu").refusal
    assert street.files() == []


def test_a_series_folder_is_one_name_whatever_its_parts_are_called() -> None:
    wild = Labels("../s", "../../a", "k", "/etc", "b\\c", "m/../..", "bf16", 1, "command")
    folder = Path(wild.folder("digest"))
    assert folder.name == str(folder)
    assert folder.name not in ("", ".", "..")


def test_a_group_is_a_name_and_no_path(street: Street) -> None:
    (street.folder / "x.yaml").write_text("kind: grouped\n")
    for door, argument in (
        (parallel.main, "attention=../x"),
        (cache.main, "config=../../etc/passwd"),
        (run.main, "attention=../../x"),
    ):
        assert street.knock(door, argument).refusal
    assert street.files() == ["x.yaml"]
