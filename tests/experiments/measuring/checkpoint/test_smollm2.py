"""SmolLM2-135M-Instruct as a package carries it: 200 greedy tokens, on every exact storage and CPU backend."""

import json
from pathlib import Path

import pytest
import torch

from experiments.measuring.checkpoint.hub import silence
from experiments.measuring.checkpoint.load import load
from experiments.measuring.checkpoint.source import PACKAGE, find_source, packaged
from experiments.scored import read
from tests.experiments.builders import shell
from tests.experiments.measuring.checkpoint.smollm2 import NEW

pytest.importorskip("transformers", reason="checkpoints are read by transformers")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not packaged(), reason=f"{PACKAGE} is not installed: make setup installs it"),
]

# two threads that wait for each other beside other tests take many times as long as one
ONE_THREAD = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
LOGIT_ERROR = 3e-4  # of logits up to 30, after 30 layers in float32; seen here: 6e-5
LEAST = {  # what can be had on any CPU
    *("contiguous, eager", "contiguous, sdpa", "contiguous, numba_split_kv", "no cache"),
    *("paged, eager", "paged, numba_split_kv", "ring, eager", "ring, numba_split_kv"),
}


def test_logits_and_greedy_text_are_those_of_transformers(tmp_path: Path) -> None:
    answer = shell("-m", "tests.experiments.measuring.checkpoint.smollm2", cwd=tmp_path, **ONE_THREAD)
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)
    assert set(found["parities"]) >= LEAST
    for name, parity in found["parities"].items():
        print(f"{name}: {parity['said']}")
        assert parity["tokens"] == NEW, name
        assert 0 < parity["error"] < LOGIT_ERROR, name
        assert parity["holds"], f"{name}: {parity['said']}"
    assert found["bytes as predicted"]


def test_the_file_is_read_as_transformers_reads_it() -> None:
    """Dequantised and turned back from ggml's order of rows: the very same numbers."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    model = load("smollm2")
    own, path = dict(model.model.named_parameters()), find_source("smollm2").path
    with silence():
        told = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model.model)
    assert set(told["tensors"]) == set(own)
    assert [name for name, tensor in told["tensors"].items() if not torch.equal(own[name], tensor)] == []
    fields = {field: value for field, value in told["config"].items() if hasattr(model.model.config, field)}
    padding = fields.pop("pad_token_id")  # which nothing here pads with
    assert padding is not None
    assert {field: getattr(model.model.config, field) for field in fields} == fields
    assert {"hidden_size", "rms_norm_eps", "vocab_size", "tie_word_embeddings", "eos_token_id"} <= set(fields)
    assert model.note == "Q4_1, Q8_0 dequantised once"


def test_it_writes_sense_within_three_gibibytes(tmp_path: Path) -> None:
    code = (
        "import resource; from experiments.generate import main\n"
        "try: main()\n"
        "finally: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    said = shell("-c", code, "prompt=The capital of France is", "tokens=12", cwd=tmp_path)
    assert said.code == 0, said.err
    assert "The capital of France is Paris" in said.out
    assert "as its layout predicts" in said.out
    assert int(said.out.split()[-1]) < 3 * 2**20  # KiB


def test_quality_is_scored_and_training_regains_some_of_it(tmp_path: Path) -> None:
    text = ("window=128", "held_out=2", "calibration=4")
    few_steps = ("distil.windows=4", "distil.steps=8", "distil.learning_rate=0.0002")
    options = [f"quality.{it}" for it in ("variants=[mha,mla-160-32]", *text, *few_steps)]
    code = (
        "import resource; from experiments.run import main\n"
        "try: main()\n"
        "finally: print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    said = shell("-c", code, "study=quality", *options, cwd=tmp_path, **ONE_THREAD)
    assert said.code == 0, said.err
    rows = {(row.label, row.steps): row for row in read(tmp_path / "results" / "runs" / "quality")[0].values()}
    own, mha = rows["gqa (original)", 0], rows["mha", 0]
    before, after = rows["mla (160 + 32)", 0], rows["mla (160 + 32)", 8]
    assert 2 < own.perplexity < 40
    assert mha.perplexity == pytest.approx(own.perplexity, rel=1e-4)
    assert mha.divergence < 1e-5
    assert after.divergence < before.divergence
    assert [row.bytes_per_token for row in (mha, own, before)] == [4 * 2 * 64 * 9, 4 * 2 * 64 * 3, 4 * 192]
    assert int(said.out.split()[-1]) < 3 * 2**20  # KiB


def test_heads_repeated_write_the_same(tmp_path: Path) -> None:
    said = [
        shell("-m", "experiments.generate", "prompt=The capital of France is", "tokens=12", *how, cwd=tmp_path).out
        for how in ((), ("attention=mha",))
    ]
    texts = [next(line for line in out.splitlines() if line.startswith("The capital")) for out in said]
    assert texts[0] == texts[1]
    assert "heads repeated, exact" in said[1]
