"""The explain door, end to end: what it says of every variant, what it writes, and what it refuses in one line."""

import csv
import json
from pathlib import Path

import pytest

from experiments.explain import WIDTH, main
from tests.blocking import not_installed
from tests.builders import config, presets, spec_of
from tests.experiments.builders import Street, shell
from variants.contract.cost import Point, step_work
from variants.contract.dtype import Dtype
from variants.contract.scopes import recompute_work

SMALL = ("model=smollm2_135m", "context=64")
FORMS = ("absorbed", "materialized", "expanded")


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Street:
    return Street(tmp_path, monkeypatch, capfd)


@pytest.mark.parametrize("name", list(config("attention")))
@pytest.mark.slow
def test_every_variant_is_explained_and_ends_with_what_it_saves(street: Street, name: str) -> None:
    forms = FORMS if "form" in config("attention")[name] else (None,)
    for form in forms:
        chosen = [f"attention={name}", *([f"attention.form={form}"] if form else [])]
        said = street.knock(main, *chosen, "context=64")
        assert (said.code, said.err) == (0, "")
        assert str(street.folder.parent) not in said.out
        options = config("attention")[name] | ({"form": form} if form else {})
        a_token = int(spec_of(options, presets()["llama3_8b"]).layout(Dtype.BF16).bytes_per_token)
        assert f"This step wrote {a_token:,} B per sequence" in said.out
        order = ["Persists", "Made in one step", "Against MHA", "Against no cache at all", "Why queries are not cached"]
        assert sorted(order, key=said.out.index) == order
        assert ("anew in every step" in said.out) is (form == "materialized")
    assert street.files() == []


def test_what_is_saved_is_counted_by_layout_and_cost(street: Street) -> None:
    said = street.knock(main, "attention=mla", "context=1k").out
    model, point = presets()["llama3_8b"], Point(1, 1024, 1, Dtype.BF16)
    spec = spec_of(config("attention")["mla"], model)
    assert "mla caches 1,152 B per token and layer, MHA 16,384 B: 14.2x fewer" in " ".join(said.split())
    assert "1k             36 MiB             512 MiB            14.2x" in said  # 1,152 x 1,024 x 32 layers
    step = step_work(spec.layout(Dtype.BF16), spec.geometry(), spec.matmuls(), spec.hidden_size, point)
    ratio = recompute_work(spec, point).flops / step.flops
    (line,) = [line for line in said.splitlines() if line.startswith("1k ") and "FLOP" in line]
    assert line.split()[5] == f"{ratio:.0f}x"
    # 32 queries of 576 numbers in 2 bytes each
    assert "Keeping it would add 36,864 B per token and layer, 32.0 times what mla caches" in " ".join(said.split())


def test_a_cache_larger_than_mhas_is_said_to_be_larger(street: Street) -> None:
    said = street.knock(main, "attention=mla", "attention.form=expanded", "context=64").out
    assert "MHA 16,384 B: 1.25x more" in " ".join(said.split())


@pytest.mark.parametrize("name", list(config("attention")))
def test_every_toy_fits_a_narrow_screen_and_tells_its_lesson(street: Street, name: str) -> None:
    said = street.knock(main, f"attention={name}", "toy=true")
    assert (said.code, said.err) == (0, "")
    assert max(map(len, said.out.splitlines())) <= WIDTH
    assert '"The code is" -> "running"' in said.out
    assert "3 x 3 per head" in said.out
    assert "1 x 4 per head" in said.out
    assert "2 heads cannot tell GQA from MHA or MQA" in said.out
    assert said.out.count("running  ") >= 3  # its row of the cache, its scores, its weights


def test_several_are_explained_one_after_the_other(street: Street) -> None:
    said = street.knock(main, "-m", "attention=mha,mla", "toy=true")
    assert (said.code, said.err) == (0, "")
    assert said.out.index("mha: ") < said.out.index("mla: ")
    assert street.files() == []


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_every_tensor_can_be_had_as_data(street: Street, ending: str) -> None:
    assert street.knock(main, "attention=gqa", *SMALL, f"out=tensors.{ending}").code == 0
    text = (street.folder / f"tensors.{ending}").read_text()
    rows = json.loads(text) if ending == "json" else list(csv.DictReader(text.splitlines()))
    (scores,) = [row for row in rows if row["name"] == "scores"]
    assert (scores["letters"], scores["shape"], int(scores["bytes"])) == ("B Q G H/G T", "1 1 3 3 64", 9 * 64 * 4)
    assert any(str(row["minor"]) == "True" for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["attention=mla", "context=0"], "workload.context must be a whole number >= 1"),
        (["context=[1k,2k]"], "context must be one number; got [1024, 2048]"),
        (["attention=wings"], "Could not find 'attention/wings'"),
        (["attention=mla", "attention.form=melted"], "MLA form must be one of"),
        (["backend=triton_split_kv", *SMALL], "triton"),
        (["dtype=fp8_e4m3", *SMALL], "cpu cannot multiply fp8_e4m3 activations"),
        (["storage=ring", *SMALL], "window"),
        (["toy=maybe"], "toy must be true or false; got 'maybe'"),
        (["toy=true", "out=x.csv"], "out is for the tensors of a step"),
        (["out=x.txt", *SMALL], "out must end in .csv or .json; got 'x.txt'"),
        (["model=llama3_1_405b", "attention=mha", "context=1M", "batch=64"], "take a smaller context, batch or model"),
    ],
)
def test_what_cannot_be_explained_is_refused_in_one_line(street: Street, arguments: list[str], said: str) -> None:
    assert said in street.knock(main, *arguments).refusal
    assert street.files() == []


def test_help_needs_no_torch(tmp_path: Path) -> None:
    code = not_installed("torch", "pandas") + "from experiments.explain import main\nmain()"
    answer = shell("-c", code, "--help", cwd=tmp_path)
    assert answer.code == 0
    assert "kvariants-explain runs one decode step" in answer.out
