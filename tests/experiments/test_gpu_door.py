"""The GPU door: refusals in one line and, on a pretended GPU, a whole run of every section."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from experiments import gpu as door
from experiments.gpu_sections import rig as rigs
from experiments.gpu_sections import runner
from experiments.gpu_sections.journal import BUNDLE, LOG, read
from experiments.gpu_sections.runner import SECTIONS
from experiments.measuring import device as devices
from tests.experiments.builders import Answer, Street, device
from tests.experiments.gpu_sections.rigs import rig

Knock = Callable[..., Answer]


@pytest.fixture
def knock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Knock:
    street = Street(tmp_path, monkeypatch, capfd)
    return lambda *arguments: street.knock(door.main, *arguments)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """find_device("cuda") finds a CPU, and the rig is one for it; a busy machine may take its time."""
    for name, section in list(SECTIONS.items()):
        monkeypatch.setitem(SECTIONS, name, rigs.Section(section.rows, 1e6))
    monkeypatch.setattr(runner, "TOTAL_S", 1e6)
    monkeypatch.setattr(devices, "find_device", lambda kind: device())
    monkeypatch.setattr(rigs, "Rig", lambda device: rig(device=device))


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("arguments", [(), ("--sections", "env,race"), ("--sections", "")])
def test_without_a_gpu_it_says_so_in_one_line(knock: Knock, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    refusal = knock("--out", str(tmp_path / "out"), *arguments).refusal
    assert refusal == f"this machine has no CUDA GPU that torch {torch.__version__} can use"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (("--sections", "env,fast"), "no section is called 'fast'; there are env, ceilings, oracle, timers, graph,"),
        (("--section=", "--quick"), "unrecognized arguments: --quick (see --help)"),
    ],
)
def test_bad_input_is_one_line_on_any_machine(knock: Knock, arguments: tuple[str, ...], refusal: str) -> None:
    assert knock(*arguments).refusal.startswith(refusal)


def test_a_python_that_lacks_packages_is_told_which(knock: Knock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "find_spec", lambda name: None if name in ("einops", "psutil") else name)
    assert knock().refusal == "this Python has no einops, psutil; take one that has, or run `make setup`"


@pytest.mark.slow
@pytest.mark.usefixtures("pretended")
def test_every_section_runs_and_leaves_one_bundle_and_one_log(knock: Knock, tmp_path: Path) -> None:
    answer = knock("--out", str(tmp_path / "out"))
    rows = read(tmp_path / "out" / BUNDLE)
    ends = {row["section"]: row["status"] for row in rows if row["case"] == "section"}
    assert ends == dict.fromkeys(SECTIONS, "ok")
    assert set(Counter(row["status"] for row in rows)) == {"ok", "refused"}
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [BUNDLE, LOG]
    assert answer.code == 0, answer.out
    assert answer.out.splitlines()[-1].startswith(f"{len(rows)} rows in ")


@pytest.mark.usefixtures("pretended")
def test_a_part_can_be_run_again(knock: Knock, tmp_path: Path) -> None:
    assert knock("--out", "out", "--sections", "timers,env").code == 0
    assert knock("--out", "out", "--sections", "timers").code == 0
    assert {row["section"] for row in read(tmp_path / "out" / BUNDLE)} == {"env", "timers"}


@pytest.mark.usefixtures("pretended")
def test_anything_amiss_is_three(knock: Knock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SECTIONS, "env", rigs.Section(lambda _: iter([{"case": "a", "status": "wrong"}]), 5))
    assert knock("--out", "out", "--sections", "env").code == 3
