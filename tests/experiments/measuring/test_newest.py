"""A token that outweighs its neighbours: missing it is seen at any length, and so is a mistake in the others."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import yaml

from experiments.measuring import prepare
from experiments.measuring.prepare import Replica, error_budget, prove
from experiments.measuring.series import Series
from tests.builders import ROOT
from tests.experiments.builders import TINY, Faulty, prepared, series

ATTENTIONS = ("mha", "gqa", "mqa", "mla", "gta", "gla")
MODEL = {**TINY, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 64}
BUDGET = error_budget(torch.bfloat16)


def made(attention: str, context: int = 4096, storage: str = "contiguous", **more: Any) -> Series:
    return series(attention, "eager", model=MODEL, context=context, dtype="bf16", storage=storage, **more)


def error(of: Series, share: float = 1.0) -> float:
    (replica,) = prepared(replace(of, backend=Faulty(share=share)), 1)
    return prove(replica, lambda: None).relative_error


def attended(replica: Replica) -> torch.Tensor:
    return replica.planned.attend(replica.query)[0].float()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("context", [64, 4096, 2**15])
def test_a_backend_that_misses_it_is_far_off(attention: str, context: int) -> None:
    of = made(attention, context)
    assert error(of) < BUDGET / 2
    assert 0.25 < error(of, 1 - 1 / context) < 1.1  # sqrt(1 / 2) where it adds as much as all others


DEEP: dict[str, Any] = {  # DeepSeek-V3's heads and scale, few of its weights
    **yaml.safe_load((ROOT / "experiments/conf/model/deepseek_v3.yaml").read_text()),
    "hidden_size": 64,
    "q_lora_rank": 64,
}


@pytest.mark.parametrize("context", [64, 4096, 2**14])
def test_many_heads_that_share_a_latent_all_ask_for_it(context: int) -> None:
    """128 of them, whose scores of noise are 3 apart; a head in which a neighbour outweighs all sees it less."""
    right, wrong = (deep(context, share) for share in (1.0, 1 - 1 / context))
    assert 0.5 < float((wrong - right).norm() / right.norm()) < 1.1
    of_heads = (wrong - right).norm(dim=-1) / right.norm(dim=-1)
    assert of_heads.quantile(0.1) > 5 * BUDGET


def deep(context: int, share: float) -> torch.Tensor:
    of = replace(series("mla", model=DEEP, context=context, dtype="bf16"), backend=Faulty(share=share))
    (replica,) = prepared(of, 1)
    assert replica.planned.geometry.scale == pytest.approx(0.1352, abs=1e-4)
    return attended(replica)


def test_its_value_is_not_what_is_asked() -> None:
    """As it was in a third replica, whose newest value was its query, whose key lies along that."""
    for number, replica in enumerate(prepared(made("mha", 64), 3)):
        value = replica.planned.cache.view.stream("value")[0, :, 63].float()
        alike = torch.cosine_similarity(value.flatten(), replica.query.float().flatten(), dim=0)
        assert abs(float(alike)) < 0.2, number


@pytest.mark.parametrize("attention", [*ATTENTIONS, "deep"])
def test_the_others_count_as_well(attention: str) -> None:
    """The first half of the cache replaced by its second quarter, twice; the newest stays where it is."""
    of = series("mla", "eager", model=DEEP, context=4096, dtype="bf16") if attention == "deep" else made(attention)
    (replica,) = prepared(of, 1)
    right, view = attended(replica), replica.planned.cache.view
    for stream in view.layout.streams:
        rows = view.stream(stream.name)
        rows[:, :, :1024] = rows[:, :, 1024:2048].clone()
    assert (attended(replica) - right).norm() > 3 * BUDGET * right.norm()


def test_as_noise_it_would_not_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "look_at_newest", lambda *of, **where: None)
    assert error(made("gqa"), 1 - 1 / 4096) < BUDGET


@pytest.mark.parametrize(("storage", "options"), [("paged", {}), ("ring", {"window": 256})])
@pytest.mark.parametrize("queries", [1, 2])
def test_wherever_the_storage_puts_it(storage: str, options: dict[str, int], queries: int) -> None:
    """Its key's score, by the view that backends read: many standard deviations above those of noise."""
    storing = {"queries": queries} if storage == "ring" else {}
    of = made("gqa", 1000, storage, options=options, storing=storing, queries=queries)
    (replica,) = prepared(of, 1)
    with torch.no_grad():
        q, view = replica.query[:, -1].float(), replica.planned.cache.view
    (key,) = replica.planned.geometry.key
    keys, positions = view.read(key, 1000, torch.float32), view.positions(1000)
    scores = torch.einsum("bghk,bgtk->bght", q.unflatten(1, (4, 4)), keys).mean(2) * replica.planned.geometry.scale
    best = positions.expand(scores.shape[0], -1)[0][scores[0].nan_to_num(-99.0).argmax(-1)]
    assert best.tolist() == [999] * 4


def test_decompressed_keys_are_left_as_the_weights_make_them() -> None:
    of = made("mla", options={"form": "materialized"})
    assert error(of) < BUDGET / 2
