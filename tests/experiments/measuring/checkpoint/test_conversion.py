"""Another spec in a checkpoint's place: the same weights in another form or window, converted ones, or a refusal."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.measuring.checkpoint.conversion import attentions_as, name_of, windowed
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.parity import cached, read, recomputed
from experiments.measuring.checkpoint.passing import Converted
from experiments.measuring.checkpoint.run import Run
from experiments.measuring.checkpoint.words import converted
from tests.builders import BACKENDS, STORAGES, config
from tests.experiments.measuring.checkpoint.tiny import save, tokens
from variants.attention.latent.spec import FORMS
from variants.contract.dtype import Dtype
from variants.contract.keep import Window
from variants.convert import relative_error

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
    assert attentions_as(gqa, None) == attentions_as(gqa, asked("gqa")) == Converted(gqa.attentions)
    assert attentions_as(mla, asked("mla")) == Converted(mla.attentions)
    assert name_of(gqa.specs[0]) == "gqa (4:2 heads of 8)"
    assert name_of(mla.specs[0]) == "mla (latent 16, absorbed)"


def test_heads_repeated_say_the_same_and_need_no_text(gqa: Checkpoint) -> None:
    made = attentions_as(gqa, asked("mha"), no_text)
    assert (made.method, made.exact, made.error) == ("repeat", True, None)
    run = Run(gqa, made.attentions, STORAGES["paged"], BACKENDS["eager"], PROMPT + NEW)
    text = read(gqa, tokens(PROMPT + NEW), PROMPT)
    assert 0 < cached(text, gqa, [run])[0].logit_error < NEAR
    assert run.bytes_in_use == run.bytes_predicted == 3 * (PROMPT + NEW - 1) * 2 * 4 * 8 * 4
    assert converted(gqa, made) == [
        "converted from gqa (4:2 heads of 8) to mha (4:4 heads of 8): heads repeated, exact"
    ]


def test_a_latent_of_all_columns_says_the_same_and_saves_nothing(gqa: Checkpoint) -> None:
    made = attentions_as(gqa, asked("mla", kv_lora_rank=16, qk_rope_head_dim=16), no_text)
    assert made.exact
    text = read(gqa, tokens(PROMPT + NEW), PROMPT)
    assert recomputed(text, gqa, made.attentions).logit_error < 10 * NEAR
    both = (gqa.attentions, made.attentions)
    before, after = (sum(a.spec.layout(Dtype.F32).bytes_per_token for a in each) for each in both)
    assert before == after


@pytest.mark.parametrize(
    ("name", "changes", "width"),
    [
        ("mqa", {}, 2 * 8),
        ("mla", {"kv_lora_rank": 12, "qk_rope_head_dim": 6}, 12 + 6),
        ("mla", {"kv_lora_rank": 20}, 24),
    ],
)
def test_fewer_bytes_are_lossy_by_what_the_layers_lose_on_the_text(
    gqa: Checkpoint, name: str, changes: dict[str, Any], width: int
) -> None:
    seen = tokens(4 * 32, seed=7).view(4, 32)
    made = attentions_as(gqa, asked(name, **changes), lambda: seen)
    run = Run(gqa, made.attentions, STORAGES["contiguous"], BACKENDS["eager"], PROMPT + NEW)
    (parity,) = cached(read(gqa, tokens(PROMPT + NEW), PROMPT), gqa, [run])
    assert parity.logit_error > 0.01
    assert run.bytes_in_use == run.bytes_predicted == 3 * (PROMPT + NEW - 1) * width * 4
    inputs = inputs_of_theirs(gqa, seen)
    errors = [relative_error(a, b, x) for a, b, x in zip(gqa.attentions, made.attentions, inputs, strict=True)]
    assert made.error == pytest.approx(sum(errors) / len(errors), rel=1e-3)
    assert not made.exact
    assert f"lossy, mean relative error of a layer {made.error:.3g} on pydoc_data.topics" in converted(gqa, made)[0]


def inputs_of_theirs(checkpoint: Checkpoint, windows: torch.Tensor) -> list[torch.Tensor]:
    """What transformers' own attention layers are given, by hooks on them."""
    found: list[torch.Tensor] = []
    places = [layer.self_attn for layer in checkpoint.model.model.layers]
    hooks = [
        place.register_forward_pre_hook(lambda _, args, given: found.append(given["hidden_states"]), with_kwargs=True)
        for place in places
    ]
    checkpoint.model(windows)
    for hook in hooks:
        hook.remove()
    return found


def test_a_window_is_kept_by_a_conversion(tmp_path: Path) -> None:
    checkpoint = load(str(save(tmp_path, "mistral, window")))
    made = attentions_as(checkpoint, asked("mha"))
    assert [a.spec.layout(Dtype.F32).streams[0].keep for a in made.attentions] == 3 * [Window(8)]
    shorter = attentions_as(checkpoint, asked("mha", window=5)).attentions
    assert [a.spec.layout(Dtype.F32).streams[0].keep for a in shorter] == 3 * [Window(5)]
    with pytest.raises(ValueError, match="MLA caches every token; got window=8"):
        attentions_as(checkpoint, asked("mla"))


def test_a_model_without_rotation_becomes_mla_without(tmp_path: Path) -> None:
    checkpoint = load(str(save(tmp_path, "gpt2")))
    made = attentions_as(checkpoint, asked("mla", kv_lora_rank=64), no_text)
    assert made.exact
    text = read(checkpoint, tokens(PROMPT + NEW), PROMPT)
    assert recomputed(text, checkpoint, made.attentions).logit_error < 10 * NEAR
    with pytest.raises(ValueError, match="at most the 0 rotary columns"):
        attentions_as(checkpoint, asked("mla", kv_lora_rank=32, qk_rope_head_dim=8))


def no_text() -> torch.Tensor:
    raise AssertionError("nothing is to be fitted")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (asked("gta"), "the checkpoint's own, gqa (4:2 heads of 8), or, of a grouped one, mha, gqa, mqa or mla"),
        (asked("gla"), "MLA with one latent head and no q_lora_rank; got num_latent_heads=2"),
        (asked("mla", q_lora_rank=8), "one latent head and no q_lora_rank; got num_latent_heads=1, q_lora_rank=8"),
        (asked("mla", kv_lora_rank=30), "kv_lora_rank must be at most the 28 columns"),
        (asked("mla", kv_lora_rank=8, qk_rope_head_dim=18), "qk_rope_head_dim must be even, and at most the 16"),
        (asked("gqa", num_kv_heads=3), "num_kv_heads must be at least 1 and divide num_q_heads"),
    ],
)
def test_what_it_cannot_become_is_refused(gqa: Checkpoint, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        attentions_as(gqa, options, no_text)


@pytest.mark.parametrize("options", [asked("mha"), asked("mla", kv_lora_rank=8)])
def test_a_latent_is_not_converted(mla: Checkpoint, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be the checkpoint's own, mla .latent 16, absorbed.*got"):
        attentions_as(mla, options, no_text)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_latent_says_the_same(mla: Checkpoint, form: str) -> None:
    text, attentions = read(mla, tokens(PROMPT + NEW), PROMPT), attentions_as(mla, asked("mla", form=form)).attentions
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
    text, layers = read(gqa, tokens(PROMPT + NEW), PROMPT), attentions_as(gqa, asked("gqa", window=5)).attentions
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
