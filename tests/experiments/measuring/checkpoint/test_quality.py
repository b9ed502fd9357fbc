"""The quality study on a tiny model: which rows it makes, that training helps, and that a stopped one goes on."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.measuring.checkpoint import quality
from experiments.measuring.checkpoint.candidates import candidates, original
from experiments.measuring.checkpoint.corpus import Corpus, Part
from experiments.measuring.checkpoint.load import Checkpoint, load
from experiments.measuring.checkpoint.quality import UNDER_WAY, Study, fingerprint_of, rows
from experiments.measuring.distil import Schedule, distil
from experiments.scored import LOSSES, Scored
from tests.experiments.measuring.checkpoint.tiny import save, tokens

pytest.importorskip("transformers", reason="checkpoints are read by transformers")
NAMES = ["mha", "mqa", "mla-12-8"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load(str(save(tmp_path_factory.mktemp("model"))))


def part(windows: int, seed: int) -> Part:
    return Part(tokens(windows * 32, seed).view(windows, 32), (f"topic {seed}",))


TEXT = Corpus(part(4, 1), part(4, 2), part(24, 3))


def study(model: Checkpoint, folder: Path, names: list[str] | None = NAMES, **changes: Any) -> Study:
    schedule = Schedule(24, 3e-3, 0, save_every=24)
    made = Study(model, original(model), tuple(candidates(model, names)), TEXT, schedule, 0, folder, "as typed")
    return replace(made, **changes)


@pytest.fixture(scope="module")
def whole(model: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Scored], Path]:
    folder = tmp_path_factory.mktemp("whole")
    return list(rows(study(model, folder), {})), folder


def numbers(row: Scored) -> tuple[Any, ...]:
    return row.key, row.nll, row.kl, row.loss_first, row.loss_last, row.layer_error


def test_each_lossy_variant_has_a_row_as_converted_and_one_as_trained(whole: tuple[list[Scored], Path]) -> None:
    found, _ = whole
    assert [(row.label, row.steps, row.exact) for row in found] == [
        ("gqa (original)", 0, True),
        ("mha", 0, True),
        ("mqa", 0, False),
        ("mqa", 24, False),
        ("mla (12 + 8)", 0, False),
        ("mla (12 + 8)", 24, False),
    ]
    assert len({row.key for row in found}) == 6
    assert [row.bytes_per_token for row in found] == [4 * 32, 4 * 64, 4 * 16, 4 * 16, 4 * 20, 4 * 20]
    assert [row.method for row in found] == ["original", "repeat", "mean_pool", "mean_pool", "low_rank", "low_rank"]
    assert all(row.tokens == 4 * 31 for row in found)


def test_nothing_is_lost_by_what_is_exact_and_much_by_the_rest(whole: tuple[list[Scored], Path]) -> None:
    own, mha, *lossy = whole[0]
    assert own.divergence == 0
    assert mha.perplexity == pytest.approx(own.perplexity, rel=1e-4)
    assert min(row.divergence for row in lossy) > 100 * mha.divergence


def test_training_brings_layers_and_guesses_nearer_on_text_that_it_has_not_seen(
    whole: tuple[list[Scored], Path],
) -> None:
    _, _, *lossy = whole[0]
    for before, after in zip(lossy[::2], lossy[1::2], strict=True):
        assert after.loss_last is not None
        assert after.loss_first is not None
        assert after.loss_last < 0.9 * after.loss_first
        assert after.divergence < before.divergence
        assert (after.training_tokens, after.calibration_tokens) == (24 * 32, 4 * 32)


def test_loss_curves_are_kept_and_files_to_go_on_from_are_not(whole: tuple[list[Scored], Path]) -> None:
    found, folder = whole
    trained = [row for row in found if row.steps]
    assert {path.name for path in (folder / LOSSES).iterdir()} == {f"{row.key}.npy" for row in trained}
    for row in trained:
        curve = np.load(folder / LOSSES / f"{row.key}.npy")
        assert curve.shape == (3, 24)
        assert curve[:, -1].mean() == pytest.approx(row.loss_last)
    assert not list((folder / UNDER_WAY).glob("*"))


def test_rows_that_are_there_are_not_computed_again(
    model: Checkpoint, whole: tuple[list[Scored], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("computed again")

    for name in ("score", "replaced", "distil"):
        monkeypatch.setattr(quality, name, never)
    known = {row.key: row for row in whole[0]}
    assert list(rows(study(model, tmp_path), known)) == whole[0]
    with pytest.raises(AssertionError, match="computed again"):
        list(rows(study(model, tmp_path), {key: row for key, row in known.items() if row is not whole[0][3]}))


@pytest.mark.parametrize("done", [0, 1, 4])
def test_a_stopped_study_goes_on_and_ends_with_the_same_numbers(
    model: Checkpoint, whole: tuple[list[Scored], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, done: int
) -> None:
    trained, real = 0, distil

    def stopping(*given: Any) -> list[float]:
        nonlocal trained
        if trained == done:
            raise KeyboardInterrupt
        trained += 1
        return real(*given)

    first: list[Scored] = []
    monkeypatch.setattr(quality, "distil", stopping)
    with pytest.raises(KeyboardInterrupt):
        first.extend(rows(study(model, tmp_path), {}))  # those that came before stay
    monkeypatch.setattr(quality, "distil", real)
    again = list(rows(study(model, tmp_path), {row.key: row for row in first}))
    assert 0 < len(first) < len(again)
    assert again[: len(first)] == first
    assert [numbers(row) for row in again[len(first) :]] == [
        (key, pytest.approx(nll), pytest.approx(kl, abs=1e-9), *rest)
        for key, nll, kl, *rest in map(numbers, whole[0][len(first) :])
    ]


def test_keys_hold_what_decides_a_row_and_nothing_else(model: Checkpoint, tmp_path: Path) -> None:
    def keys(**changes: Any) -> list[str]:
        it = replace(study(model, tmp_path, ["mqa"]), **changes)
        mark = fingerprint_of(model)
        return [
            quality._key(it, it.original, mark, None),
            quality._key(it, it.candidates[0], mark, None),
            quality._key(it, it.candidates[0], mark, it.schedule),
        ]

    def differing(**changes: Any) -> list[bool]:
        return [one != other for one, other in zip(keys(), keys(**changes), strict=True)]

    assert differing(command="other", folder=tmp_path / "other") == [False, False, False]
    assert differing(corpus=replace(TEXT, held_out=part(4, 9))) == [True, True, True]
    assert differing(corpus=replace(TEXT, calibration=part(4, 9))) == [False, True, True]
    assert differing(corpus=replace(TEXT, training=part(4, 9))) == [False, False, True]
    assert differing(schedule=Schedule(25, 3e-3)) == [False, False, True]
    assert differing(schedule=Schedule(24, 3e-3, 1)) == [False, False, True]
    assert differing(schedule=Schedule(24, 3e-3, 0, save_every=2)) == [False, False, False]


def test_other_weights_have_another_fingerprint(model: Checkpoint, tmp_path: Path) -> None:
    assert fingerprint_of(model) == fingerprint_of(load(str(save(tmp_path / "same"))))
    assert fingerprint_of(model) != fingerprint_of(load(str(save(tmp_path / "wider", intermediate_size=56))))


def test_what_suits_a_checkpoint(model: Checkpoint, tmp_path: Path) -> None:
    assert [it.label for it in candidates(model, None)] == [
        *("mha", "mqa", "mla (17 + 4)", "mla (12 + 4)", "mla (6 + 4)")
    ]
    mha = load(str(save(tmp_path / "mha", num_key_value_heads=4)))
    assert [it.label for it in candidates(mha, None)][:3] == ["gqa (2 heads)", "mqa", "mla (38 + 4)"]
    assert original(mha).label == "mha (original)"
    window = load(str(save(tmp_path / "window", "mistral, window")))
    assert [it.label for it in candidates(window, None)] == ["mha", "mqa"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["mla"], "variants must be mha, mqa, gqa-<kv heads> or mla-<latent>-<rotary columns>; got 'mla'"),
        ([3], "variants must be .*; got 3"),
        (["gqa-3"], "num_kv_heads must divide"),
        (["mla-99-4"], "kv_lora_rank must be at most the 28 columns"),
        (["mla-8-3"], "qk_rope_head_dim must be even"),
    ],
)
def test_what_cannot_be_a_variant(model: Checkpoint, names: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        candidates(model, names)


def test_a_latent_checkpoint_is_not_converted(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="conversions start from grouped attention .*the checkpoint has mla"):
        candidates(load(str(save(tmp_path, "deepseek_v3"))), None)
