"""The generate door, end to end, over a model that is small enough for a test."""

import re
from pathlib import Path

import pytest

from experiments.generate import main, quoted
from tests.blocking import not_installed
from tests.experiments.builders import Street, shell
from tests.experiments.measuring.checkpoint.tiny import save, with_letters, with_tokenizer

PROMPT = "prompt=w3 w1 w4 w1 w5 w9"


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Street:
    return Street(tmp_path, monkeypatch, capfd)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    pytest.importorskip("transformers", reason="checkpoints are read by transformers")
    return f"checkpoint={with_tokenizer(save(tmp_path_factory.mktemp('models') / 'tiny', eos_token_id=None))}"


def test_text_times_and_bytes_are_told(street: Street, model: str) -> None:
    said = street.knock(main, model, PROMPT, "tokens=7")
    assert (said.code, said.err) == (0, "")
    heading, text, *numbers = [line for line in said.out.splitlines() if line]
    assert re.fullmatch(
        r"tiny: 3 layers of gqa \(4:2 heads of 8\), sdpa on contiguous; weights in fp32, loaded in \d+\.\d s", heading
    )
    assert text.startswith(PROMPT.removeprefix("prompt="))
    assert len(text.split()) == 6 + 7
    assert numbers[0] == "text         6 tokens and 7 new ones"
    assert re.fullmatch(r"first token  [\d,]+ ms", numbers[1])
    assert re.fullmatch(r"then         [\d.]+ tokens per second; ms between tokens: p50 .*, p90 .*, p99 .*", numbers[2])
    # 3 layers, 12 tokens that were heard, keys and values, 2 heads of 8, 4 bytes
    counted = f"{3 * 12 * 2 * 2 * 8 * 4:,} B in use for 12 tokens, as its layout predicts"
    assert numbers[3] == f"cache        {counted}; {3 * 13 * 2 * 2 * 8 * 4:,} B allocated"
    assert street.files() == []


@pytest.mark.parametrize(
    "how",
    [
        ["storage=paged", "backend=eager"],
        ["storage=paged", "backend=numba_split_kv"],
        ["storage=ring", "backend=eager"],
        ["attention=gqa"],
    ],
)
def test_the_text_does_not_depend_on_who_keeps_and_reads_it(street: Street, model: str, how: list[str]) -> None:
    texts = [street.knock(main, model, PROMPT, "tokens=7", *more).out.splitlines()[2] for more in ([], how)]
    assert texts[0] == texts[1] != ""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (["attention=mha"], "to mha (4:4 heads of 8): heads repeated, exact"),
        (["attention=mqa"], "to mqa (4:1 heads of 8): heads averaged, lossy, mean relative error of a layer 0."),
        (
            ["attention=mla", "attention.kv_lora_rank=16", "backend=eager"],
            "to mla (latent 16, absorbed): keys and values at low rank, lossy, mean relative error of a layer 0.",
        ),
    ],
)
def test_another_attention_is_converted_and_says_what_it_lost(
    street: Street, tmp_path: Path, how: list[str], said: str
) -> None:
    model = f"checkpoint={with_letters(save(tmp_path / 'model'))}"  # real text is to say something to it
    answer = street.knock(main, model, PROMPT, "tokens=7", *how)
    assert (answer.code, answer.err) == (0, "")
    (line,) = [line for line in answer.out.splitlines() if line.startswith("converted")]
    assert line.startswith(f"converted from gqa (4:2 heads of 8) {said}")
    assert "as its layout predicts" in answer.out


def test_it_stops_where_the_model_does(street: Street, model: str) -> None:
    said = street.knock(main, model, PROMPT, "tokens=7").out.splitlines()[2].split()
    third = int(said[6 + 2].removeprefix("w"))
    folder = with_tokenizer(save(street.folder / "ends", eos_token_id=third))
    ended = street.knock(main, f"checkpoint={folder}", PROMPT, "tokens=7").out
    new = said[6:].index(f"w{third}") + 1
    assert f"text         6 tokens and {new} new ones, where the model ends its text" in ended
    assert "7 new ones\n" in street.knock(main, f"checkpoint={folder}", PROMPT, "tokens=7", "stop=false").out


@pytest.mark.parametrize(
    "prompt",
    [
        "a, b",
        "it's",
        'say "so"',
        "x=y: {z}",
        "${oc.env:HOME}",
        "ends in \\",
        "back\\slash",
        "",
        "[1,2]",
        "  spaced  ",
        '\\"',
        "\\${x} \\\\",
    ],
)
def test_a_prompt_is_taken_as_typed(prompt: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    (override,) = OverridesParser.create().parse_overrides([quoted(f"prompt={prompt}")])
    assert not override.is_sweep_override()
    assert OmegaConf.create({"prompt": override.value()}).prompt == prompt


def test_quotes_of_ones_own_stay(street: Street) -> None:
    assert quoted("prompt='a, b'") == "prompt='a, b'"
    assert quoted("tokens=3") == "tokens=3"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["checkpoint=nowhere"], "checkpoint must be a folder, a .gguf file or smollm2; there is no"),
        (["tokens=0"], "tokens must be a whole number >= 1; got 0"),
        (["tokens=many"], "tokens must be a whole number >= 1; got 'many'"),
        (["stop=maybe"], "stop must be true or false; got 'maybe'"),
        (["dtype=int8"], "cpu cannot multiply int8 activations"),
        (["dtype=huge"], "huge"),
        (["backend=wings"], "Could not find 'backend/wings'"),
        (["attention=gta"], "attention must be the checkpoint's own, gqa (4:2 heads of 8)"),
        (["attention=mla"], "kv_lora_rank must be at most the 28 columns"),
        (["attention=gqa", "attention.wings=2"], "wings"),
        (["storage=paged"], "sdpa cannot do storage paged"),
        (["backend=triton_split_kv"], "triton"),
        (["tokens=123"], "prompt and tokens must have at most 128 positions; got 6 and 123"),
        (["prompt="], "prompt must hold at least one token; got ''"),
        (["kv_dtype=int8"], "sdpa cannot do"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(street: Street, model: str, arguments: list[str], said: str) -> None:
    assert said in street.knock(main, model, PROMPT, *arguments).refusal
    assert street.files() == []


def test_a_checkpoint_without_tokenizer_cannot_write(street: Street, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="checkpoints are read by transformers")
    assert "has no tokenizer that can be read" in street.knock(main, f"checkpoint={save(tmp_path / 'mute')}").refusal


def test_help_says_what_each_setting_means_and_needs_no_torch(tmp_path: Path) -> None:
    code = not_installed("torch", "pandas", "transformers") + "from experiments.generate import main\nmain()"
    answer = shell("-c", code, "--help", cwd=tmp_path)
    assert answer.code == 0
    for setting in ("checkpoint", "prompt", "tokens", "stop", "storage", "backend", "attention", "dtype, kv_dtype"):
        assert re.search(rf"^ *(.* {{2,}})?{setting} +\w", answer.out, re.MULTILINE), setting
