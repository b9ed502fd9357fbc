"""Another spec in a checkpoint's place: the same weights in another form or window, anything else refused."""

from dataclasses import replace
from typing import Any

import pytest

from experiments.measuring.checkpoint.conversion import attentions_as, name_of, windowed
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.parity import cached, read, recomputed
from experiments.measuring.checkpoint.run import Run
from tests.builders import BACKENDS, STORAGES, config
from tests.experiments.measuring.checkpoint.tiny import save, tokens
from variants.attention.latent.spec import FORMS
from variants.contract.dtype import Dtype

pytest.importorskip("transformers", reason="checkpoints are read by transformers")
PROMPT, NEW = 9, 14
NEAR = 5e-5


@pytest.fixture(scope="module")
def gqa(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load(str(save(tmp_path_factory.mktemp("gqa"), "llama, biases")))


@pytest.fixture(scope="module")
def mla(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load(str(save(tmp_path_factory.mktemp("mla"), "deepseek_v3")))


def asked(name: str, **changes: Any) -> dict[str, Any]:
    return {**config("attention")[name], **changes}


def test_its_own_attention_may_be_named(gqa: Checkpoint, mla: Checkpoint) -> None:
    assert attentions_as(gqa, None) == attentions_as(gqa, asked("gqa")) == gqa.attentions
    assert attentions_as(mla, asked("mla")) == mla.attentions
    assert name_of(gqa.specs[0]) == "gqa (4:2 heads of 8)"
    assert name_of(mla.specs[0]) == "mla (latent 16, absorbed)"


@pytest.mark.parametrize(
    ("name", "said"), [("mha", "mha (4:4 heads"), ("mqa", "mqa (4:1"), ("mla", "mla"), ("gta", "tied")]
)
def test_other_weights_are_refused(gqa: Checkpoint, name: str, said: str) -> None:
    with pytest.raises(ValueError, match="must be the checkpoint's own, gqa") as caught:
        attentions_as(gqa, asked(name))
    assert f"got {said}" in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_latent_says_the_same(mla: Checkpoint, form: str) -> None:
    text, attentions = read(mla, tokens(PROMPT + NEW), PROMPT), attentions_as(mla, asked("mla", form=form))
    assert {a.spec.form for a in attentions} == {form}
    run = Run(mla, attentions, STORAGES["paged"], BACKENDS["eager"], PROMPT + NEW)
    for parity in (recomputed(text, mla, attentions), *cached(text, mla, [run])):
        assert parity.logit_error < NEAR
    assert run.bytes_in_use == run.bytes_predicted
    width = 16 + 4 if form != "expanded" else 4 * (12 + 6)
    assert run.bytes_predicted == 3 * (PROMPT + NEW - 1) * width * 4


def test_a_window_as_long_as_the_text_changes_nothing_and_fits_a_ring(gqa: Checkpoint) -> None:
    text, layers = read(gqa, tokens(PROMPT + NEW), PROMPT), windowed(gqa.attentions, PROMPT + NEW)
    run = Run(gqa, layers, STORAGES["ring"], BACKENDS["eager"], PROMPT + NEW)
    assert cached(text, gqa, [run])[0].logit_error < NEAR
    assert run.bytes_in_use == run.bytes_predicted


def test_a_shorter_window_says_something_else(gqa: Checkpoint) -> None:
    text, layers = read(gqa, tokens(PROMPT + NEW), PROMPT), attentions_as(gqa, asked("gqa", window=5))
    run = Run(gqa, layers, STORAGES["ring"], BACKENDS["eager"], PROMPT + NEW)
    (parity,) = cached(text, gqa, [run])
    assert parity.logit_error > 0.1
    assert parity.logit_error == pytest.approx(recomputed(text, gqa, layers).logit_error, rel=1e-3)
    assert run.bytes_predicted == 3 * 5 * 2 * 16 * 4 < run.bytes_in_use  # the ring has slots for steps of three


def test_a_latent_has_no_window(mla: Checkpoint) -> None:
    with pytest.raises(ValueError, match="storage=ring needs an attention that can have a window"):
        windowed(mla.attentions, 8)


def test_codes_change_little_and_are_counted(gqa: Checkpoint) -> None:
    text = read(gqa, tokens(PROMPT + NEW), PROMPT)
    run = Run(gqa, gqa.attentions, STORAGES["paged"], BACKENDS["numba_split_kv"], PROMPT + NEW, Dtype.INT8)
    (parity,) = cached(text, gqa, [run])
    assert NEAR < parity.logit_error < 0.5
    assert run.bytes_in_use == run.bytes_predicted == 3 * (PROMPT + NEW - 1) * 2 * 2 * (8 + 4)


def test_a_backend_that_reads_unused_slots_is_given_zeros(gqa: Checkpoint) -> None:
    """0 times the poison of a slot that nobody has written is NaN."""

    class ReadsAll(type(BACKENDS["eager"])):  # type: ignore[misc]
        reads_unused = True

    run = Run(gqa, gqa.attentions, STORAGES["contiguous"], ReadsAll(), PROMPT + NEW)
    assert all(not slab.any() for cache in run.caches for slab in cache.view.slabs)
    text = read(gqa, tokens(PROMPT + NEW), PROMPT)
    assert cached(text, gqa, [run])[0].logit_error < NEAR
    assert run.bytes_in_use == run.bytes_predicted


def test_the_model_is_left_as_it_was(gqa: Checkpoint) -> None:
    before = list(gqa.model.modules())
    run = Run(gqa, gqa.attentions, STORAGES["contiguous"], BACKENDS["eager"], 4)
    with pytest.raises(ValueError, match="cache holds 4 tokens per sequence; this step needs 5"):
        run(tokens(5))
    assert list(gqa.model.modules()) == before
    assert replace(gqa, note="") == gqa
