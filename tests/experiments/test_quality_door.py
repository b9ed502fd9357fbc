"""``study=quality``, end to end, over a model that is small enough for a test."""

import re
import shutil
from pathlib import Path

import pytest
import yaml

from experiments.door import CONF, Composed
from experiments.quality import launch
from experiments.report import main as report
from experiments.run import main as run
from experiments.scored import read
from tests.blocking import not_installed
from tests.experiments.builders import Answer, Street, shell
from tests.experiments.measuring.checkpoint.tiny import save, with_letters
from tests.experiments.telling.rows import row, write

SIZES = ("window=32", "held_out=4", "calibration=4", "distil.windows=4", "distil.steps=6", "distil.learning_rate=0.003")
VARIANTS = "variants=[mha,mqa,mla-12-8]"
GROUPS = ("attention", "storage", "backend", "model", "workload", "timer", "device")
RUN = Path("results/runs/quality")


def score(street: Street, model: str, *options: str, run_options: tuple[str, ...] = ()) -> Answer:
    """Knock with options below ``quality``, and options of the run."""
    return street.knock(
        run, "study=quality", *(f"quality.{it}" for it in (f"checkpoint={model}", *SIZES, *options)), *run_options
    )


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Street:
    return Street(tmp_path, monkeypatch, capfd)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers", reason="checkpoints are read by transformers")
    return str(with_letters(save(tmp_path_factory.mktemp("models") / "tiny")))


@pytest.fixture(scope="module")
def done(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with one lossy variant."""
    folder = tmp_path_factory.mktemp("done")
    asked = yaml.safe_load((CONF / "study" / "quality.yaml").read_text())["quality"]
    for name, value in (it.split("=") for it in (*SIZES, f"checkpoint={model}", "variants=[mqa]")):
        below, _, last = name.rpartition(".")
        (asked[below] if below else asked)[last] = yaml.safe_load(value)
    run = {"name": "quality", "results": str(folder / "results"), "resume": "missing", "quality": asked}
    assert launch([Composed(run, {})], "as typed") == 0
    return folder / RUN


def test_rows_a_table_and_a_figure_and_nothing_twice(street: Street, model: str) -> None:
    said = score(street, model, VARIANTS)
    assert (said.code, said.err) == (0, "")
    first, *lines = [line for line in said.out.splitlines() if line]
    assert re.match(
        r"tiny on pydoc_data.topics of Python [\d.]+: held out 128 tokens of \d+ topics?, "
        r"calibration 128 tokens of \d+ topics?, training 128 tokens of \d+ topics?",
        first,
    )
    names = ["gqa (original)", "mha", "mqa", "mqa after 6 steps per layer"]
    names += ["mla (12 + 8)", "mla (12 + 8) after 6 steps per layer"]
    assert [line.split(": perplexity")[0] for line in lines[:6]] == names
    assert lines[6:] == [
        "report: results/reports/quality/report.md",
        "figure: results/reports/quality/figures/quality.png (and .svg)",
        "figure: results/reports/quality/figures/quality-losses.png (and .svg)",
    ]
    rows, warnings = read(RUN)
    assert (len(rows), warnings) == (6, [])
    page = Path("results/reports/quality/report.md").read_text()
    commands = page.split("## Reproduce")[1]
    assert "python -m experiments.run study=quality quality.checkpoint=" in commands
    assert "python -m experiments.report runs=results/runs/quality\n" in commands
    again = score(street, model, VARIANTS)
    assert again.out.count(", as it was") == 6
    assert read(RUN) == (rows, [])


def test_more_variants_and_longer_training_keep_what_is_there(street: Street, model: str, done: Path) -> None:
    shutil.copytree(done, RUN)
    said = score(street, model, "variants=[mqa,mla-12-8]", "distil.steps=7").out
    assert said.count(", as it was") == 2  # the original, and MQA as it is converted
    said = score(street, model, "variants=[mqa]", "distil.steps=0", run_options=("resume=all",)).out
    assert said.count(", as it was") == 0
    assert "steps per layer" not in said


def test_resume_none_wants_nothing_there(street: Street, model: str, done: Path) -> None:
    shutil.copytree(done, RUN)
    said = score(street, model, "variants=[mqa]", run_options=("resume=none",))
    assert "results/runs/quality already holds rows of quality, and resume=none" in said.refusal
    other = score(street, model, "variants=[]", run_options=("resume=none", "name=other"))
    assert (other.code, len(read(Path("results/runs/other"))[0])) == (0, 1)


def test_the_report_is_written_again_from_the_rows(street: Street, done: Path) -> None:
    shutil.copytree(done, RUN)
    said = street.knock(report, "runs=results/runs/quality", "out=told")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[0] == "report: told/report.md"
    assert {path.name for path in Path("told/figures").glob("*.png")} == {"quality.png", "quality-losses.png"}
    of_run = (done.parents[1] / "reports" / "quality" / "report.md").read_text()
    ours = Path("told/report.md").read_text()
    assert ours.rpartition("```sh")[0] == of_run.rpartition("```sh")[0] != ""


@pytest.mark.parametrize("own", [True, False])
def test_beside_timed_rows_quality_has_a_section_and_a_line_per_variant(street: Street, done: Path, own: bool) -> None:
    """Of the timed rows' own folder, or of another that is named; the outcome is what it would be without."""
    timed = write(Path("results/runs/quick"), row("mqa", us=200.0), row("gqa", us=100.0))
    if own:
        shutil.copytree(done, timed / "judged")
    said = street.knock(report, f"runs={timed}", "out=told", *(() if own else (f"quality={done}",)))
    assert said.code == 0
    page = Path("told/report.md").read_text()
    assert page.split("## Decision Outcome")[1].split("\n\n")[1].startswith("**choose gqa**")
    assert "### Quality, measured on a small model" in page
    (line,) = [it for it in page.splitlines() if it.startswith("| mqa |") and "with 50 % of the original's bytes" in it]
    assert "MQA 37.9" in line
    assert "not this report's model" in page
    assert Path("told/figures/quality.png").is_file()
    assert 'alt="Cache bytes against perplexity' in Path("told/report.html").read_text()


def test_a_folder_without_rows_of_quality_is_refused(street: Street) -> None:
    timed = write(Path("results/runs/quick"), row("mqa", us=200.0), row("gqa", us=100.0))
    said = street.knock(report, f"runs={timed}", "quality=nowhere")
    assert "quality must be a folder with quality.jsonl files below it; nowhere has no row" in said.refusal


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["window=1"], "quality.window must be >= 2"),
        (["window=200"], "quality.window must be at most the model's 128 positions; got 200"),
        (["held_out=0"], "quality.held_out must be a whole number >= 1; got 0"),
        (["held_out=99999"], "has too little text: 99999 windows of 32 tokens"),
        (["distil.steps=-1"], "quality.distil.steps must be a whole number >= 1; got -1"),
        (["distil.steps=true"], "quality.distil.steps must be a whole number >= 1; got True"),
        (["distil.learning_rate=0"], "learning_rate must be a number > 0; got 0"),
        (["distil.windows=x"], "quality.distil.windows must be a whole number >= 1; got 'x'"),
        (["distil=3"], "quality.distil must have exactly the options steps, windows, learning_rate; got 3"),
        (["variants=mqa"], "quality.variants must be a list such as"),
        (["variants=[gta]"], "variants must be mha, mqa, gqa-<kv heads> or mla-<latent>-<rotary columns>; got 'gta'"),
        (["variants=[gqa-3]"], "num_kv_heads must divide the layer's 2"),
        (["seed=-1"], "quality.seed must be a whole number >= 0; got -1"),
        (["dtype=int8"], "cpu cannot multiply int8 activations"),
        (["checkpoint=nowhere"], "checkpoint must be a folder, a .gguf file or smollm2; there is no"),
        (["wings=2"], "wings"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(street: Street, model: str, options: list[str], said: str) -> None:
    assert said in score(street, model, *options).refusal
    assert not (street.folder / "results" / "reports").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["attention=mla"], "study=quality takes options below quality. and name, results, resume; got attention"),
        (["device=cpu", "tp=2"], "got device, tp"),
        (["+workload.context=3"], "got workload"),
        (["+wings=2"], "got wings"),
        (["shard=0/2"], "got shard"),
        (["-m", "seed=1,2"], "Could not override 'seed'"),
        (["-m", "name=a,b"], "study=quality is one run: give lists below quality."),
        (["hydra/launcher=joblib", "-m", "name=a,b"], "this run asks for quality"),
        (["resume=some"], "resume must be one of missing, failed, all, none; got 'some'"),
        (["name=../x"], "name must be letters"),
        (["asks=latency"], "config needs the group attention"),
        (["asks=fun"], "asks must be one of latency, "),
    ],
)
def test_what_would_be_ignored_is_refused_in_one_line(street: Street, options: list[str], said: str) -> None:
    flags = [it for it in options if it.startswith("-")]
    asked = street.knock(run, *flags, "study=quality", *(it for it in options if it not in flags))
    assert said in asked.refusal
    assert street.files() == []


def test_asked_for_without_its_options_it_says_what_is_missing(street: Street) -> None:
    assert (
        "asks=quality needs options below quality, which its study brings"
        in street.knock(run, "asks=quality", *(f"~{group}" for group in GROUPS)).refusal
    )


def test_an_interrupted_run_says_how_to_go_on(street: Street, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.measuring.checkpoint import quality

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quality, "distil", interrupted)
    said = score(street, model, "variants=[mqa]")
    assert (said.code, said.err) == (130, "interrupted; the same command goes on from here\n")
    assert len(read(RUN)[0]) == 2


def test_the_config_is_shown_without_torch(tmp_path: Path) -> None:
    code = not_installed("torch", "pandas", "transformers") + "from experiments.run import main\nmain()"
    answer = shell("-c", code, "study=quality", "--cfg", "job", cwd=tmp_path)
    assert answer.code == 0
    for setting in ("checkpoint", "window", "held_out", "calibration", "distil", "seed", "dtype"):
        assert f"  {setting}:" in answer.out
