"""The project as a thing to install: locks, wheel, and what may be imported without what."""

import re
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

from tests.blocking import not_installed

ROOT = Path(__file__).parent.parent
SITE = Path(sysconfig.get_path("purelib"))
PINNED = re.compile(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*(; sys_platform == \"[a-z0-9]+\")?")
TORCH_FREE = ("variants.contract", "experiments.record", "experiments.telling", "experiments.planning")
DOORS = (
    "experiments.run",
    "experiments.report",
    "experiments.predict",
    "experiments.explain",
    "experiments.generate",
    "experiments.cache",
    "experiments.bench",
    "experiments.gpu",
    "experiments.compare",
    "experiments.doctor",
    "experiments.collect",
    "experiments.parallel",
)

# Run in a fresh interpreter: blocks some packages, then imports a module and everything below it.
IMPORT_ALL = """
import importlib, pkgutil
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), name + "."):
        importlib.import_module(found.name)
        print(found.name)
    print(name)
"""

# Calls a console script with only a wheel and site-packages in sight: no checkout, no editable install (-I -S).
CALL_SCRIPT = """
import importlib, sys
wheel, site, entry, *arguments = sys.argv[1:]
sys.path[:0] = [wheel, site]
module, function = entry.split(":")
sys.argv = [entry, *arguments]
getattr(importlib.import_module(module), function)()
"""


def lock(name: str) -> list[str]:
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def package(requirement: str) -> str:
    """The normalised name in ``Jinja2>=3.1``."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement)[0]).lower()


def import_without(blocked: tuple[str, ...], *modules: str) -> list[str]:
    command = [sys.executable, "-c", not_installed(*blocked) + IMPORT_ALL, *modules]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def importable(dotted: str) -> bool:
    place = ROOT / dotted.replace(".", "/")
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def test_locks_pin_exact_public_releases() -> None:
    core, check = lock("requirements.lock"), lock("requirements-check.lock")
    assert check[0] == "-r requirements.lock"
    assert [line for line in core + check[1:] if not PINNED.fullmatch(line)] == []
    assert "torch==2.13.0" in core
    assert "numpy==2.3.5" in core
    assert 'triton==3.6.0; sys_platform == "linux"' in check
    assert not any(line.startswith("triton") for line in core)
    assert [name for name, n in Counter(map(package, core + check[1:])).items() if n > 1] == []


def test_locks_hold_every_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = set(map(package, lock("requirements.lock")))
    check = core | set(map(package, lock("requirements-check.lock")))
    assert set(map(package, project["dependencies"])) - core == set()
    for name, extra in project["optional-dependencies"].items():
        if name == "flashinfer":  # for GPUs only
            continue
        assert set(map(package, extra)) - check == set(), name


def test_planning_telling_and_specs_need_no_torch() -> None:
    specs = [f"variants.attention.{path.parent.name}.spec" for path in ROOT.glob("variants/attention/*/spec.py")]
    assert len(specs) >= 2
    wanted = [*filter(importable, TORCH_FREE), *specs]
    seen = import_without(("torch", "triton", "transformers"), *wanted)
    assert set(wanted) <= set(seen)
    assert "variants.contract.layout" in seen


def test_blocking_is_seen() -> None:
    """The check above can fail: the view does need torch."""
    with pytest.raises(AssertionError, match="torch"):
        import_without(("torch",), "variants.view")


def test_measuring_needs_no_hydra_and_no_plots() -> None:
    blocked = ("hydra", "omegaconf", "pandas", "seaborn", "matplotlib", "jinja2")
    assert "variants.decode" in import_without(
        blocked,
        "variants",
        "experiments.measuring",
        "experiments.benching",
        "experiments.gpu_sections",
        "experiments.gpu",
    )


def test_doors_open_before_torch_and_pandas_are_loaded() -> None:
    """``--help`` and a mistyped config are answered without them."""
    assert set(DOORS) == set(import_without(("torch", "pandas", "matplotlib", "seaborn"), *DOORS))


def test_no_file_names_a_machine_or_a_package_index() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    private = re.compile(rb"--(extra-)?index-url|--find[-]links|file:[/]{3}|(?<![\w.~])/(home|root|Users|work|opt)/\w")
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    found = [str(f.relative_to(ROOT)) for f in files if f.is_file() and private.search(f.read_bytes())]
    assert found == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def test_d16_the_wheel_holds_every_config_once_and_what_reports_are_made_of(wheel: Path) -> None:
    held = Counter(zipfile.ZipFile(wheel).namelist())
    configs = {f"experiments/{path.relative_to(ROOT)}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert configs == {name for name in held if name.endswith(".yaml")}
    for kind in (".j2", ".js", ".css"):
        needed = {str(path.relative_to(ROOT)) for path in (ROOT / "experiments").rglob(f"*{kind}")}
        assert needed == {name for name in held if name.endswith(kind)} != set()
    assert "hydra_plugins/kvariants_launcher.py" in held
    assert "hydra_plugins/__init__.py" not in held
    assert [name for name, n in held.items() if n > 1] == []
    assert {name.split("/")[0] for name in held} <= {
        "variants",
        "experiments",
        "hydra_plugins",
        "kvariants-0.1.0.dist-info",
    }


@pytest.mark.slow
def test_d16_the_wheel_works_from_any_folder(wheel: Path, tmp_path: Path) -> None:
    """One value of every config group, through the console scripts, where there is no checkout."""
    unpacked, elsewhere = tmp_path / "unpacked", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(unpacked)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    def call(script: str, *arguments: str) -> str:
        command = [sys.executable, "-I", "-S", "-c", CALL_SCRIPT, str(unpacked), str(SITE), scripts[script], *arguments]
        done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    for script in scripts:
        without_hydra = script in ("kvariants-cache", "kvariants-collect")
        assert ("Configuration groups" in call(script, "--help")) is not without_hydra
    assert "131072" in call("kvariants-cache", "config=llama3_8b")
    groups = ("attention=mla", "storage=contiguous", "backend=eager", "model=smollm2_135m", "timer=wall", "device=cpu")
    small = ("workload.context=[32]", "timer.rounds=2", "timer.replicas=2", "name=tiny")
    call("kvariants-run", "study=quick", *groups, "workload=default", *small)
    assert "mla" in call("kvariants-report", "runs=results/runs/tiny", "report=default")
    assert (elsewhere / "results" / "reports" / "tiny" / "report.md").is_file()
    call("kvariants-collect")
    assert (elsewhere / "results" / "records.parquet").is_file()
