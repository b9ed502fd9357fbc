"""Tensor and context parallel decode on four processes: the same layer, divided."""

import itertools
from typing import cast

import pytest
import torch

from experiments.planning import four
from experiments.planning.formats import parse_format
from experiments.planning.model_cache import LayerCache, ModelCache
from tests import parallel_cases
from tests.builders import SPECS, build, normal
from tests.parallel_cases import BATCH, BLOCK, EIGHT, EVERY, LATENT, PROMPT, SPLITS, STEPS, Seen
from tests.ranks import WORLD, told_by_all
from variants.contract.dtype import Dtype
from variants.contract.ranks import Cut, Turns
from variants.decode import Refused
from variants.parallel.context import merge
from variants.parallel.ranks import Ranks, start
from variants.parallel.shards import shard
from variants.protocols import Attention

TOTAL = PROMPT + STEPS
each_split = pytest.mark.parametrize(("tp", "cp"), SPLITS)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return told_by_all(parallel_cases.cases, tmp_path_factory.mktemp("ranks"))


def right(said: list[Seen], budget: float) -> None:
    """Every rank saw the whole layer's outputs, and all the very same."""
    assert all(isinstance(one, Seen) for one in said), said
    assert max(one.error for one in said) < budget
    assert len({one.outputs for one in said}) == 1


@each_split
@pytest.mark.parametrize("name", EVERY)
def test_ranks_together_are_the_whole_layer(told, name, tp, cp):
    right(told[f"{name}, tp {tp}, cp {cp}"], 1e-13)


@pytest.mark.parametrize("name", EVERY)
def test_so_are_they_in_float32_on_pages(told, name):
    right(told[f"{name}, paged fp32"], 2e-6)


@pytest.mark.parametrize("tp", [2, 4])
@pytest.mark.parametrize("name", EVERY)
def test_a_sharded_layer_prefills_like_any_other(told, name, tp):
    right(told[f"{name}, prefilled, tp {tp}"], 1e-13)


@pytest.mark.slow
def test_kernels_of_ours_merge_too(tmp_path):
    for said in told_by_all(parallel_cases.compiled_cases, tmp_path).values():
        right(said, 2e-6)


# bytes


def model_of(name: str) -> ModelCache:
    """One layer as planning sees it."""
    spec = EVERY[name]
    heads = spec.geometry().num_q_heads
    return ModelCache(name, "test", (LayerCache("full", spec.layout(Dtype.F32).streams, heads),))


@each_split
@pytest.mark.parametrize("name", EVERY)
def test_every_rank_caches_the_bytes_that_planning_predicts(told, name, tp, cp):
    """The float64 slabs of each rank, against the planner's float32: the widths here pad no row."""
    turns = Turns(cp, BLOCK)
    for number, one in enumerate(told[f"{name}, tp {tp}, cp {cp}"]):
        held = turns.held(TOTAL, number // tp % cp)
        predicted = four.per_device(model_of(name), parse_format("fp32"), held, tp).bytes
        assert one.cache_bytes == 2 * BATCH * predicted
        assert one.tokens == held


def test_bytes_are_divided_replicated_or_neither(told):
    whole = 2 * TOTAL * 16 * 8  # keys and values, tokens, width, bytes of a float64

    def bytes_of(name, tp):
        return [one.cache_bytes // BATCH for one in told[f"{name}, tp {tp}, cp 1"]]

    assert bytes_of("mha 8", 4) == [8 * whole // 4] * 4
    assert bytes_of("gqa 8:2", 4) == [2 * whole // 2] * 4  # one head on two ranks each
    assert bytes_of("mqa 8", 4) == [whole] * 4
    assert bytes_of("mla absorbed", 4) == [TOTAL * (32 + 8) * 8] * 4
    assert bytes_of("gla 8:4", 2) == [TOTAL * (32 // 2 + 8) * 8] * 2 * 2


def test_a_divided_sequence_is_cached_once(told):
    for name in EVERY:
        whole = told[f"{name}, tp 2, cp 1"][0].cache_bytes
        assert sum(one.cache_bytes for one in told[f"{name}, tp 2, cp 2"][::2]) == whole


# refusals


def test_heads_that_cannot_be_divided_are_refused(told):
    assert set(told["gqa, tp 4, cp 1"]) == {"tp must be at least 1 and divide num_q_heads; got num_q_heads=6, tp=4"}
    assert set(told["gqa partial, interleaved, tp 2, cp 2"]) == {
        "tp must divide num_kv_heads or be its multiple; got num_kv_heads=3, tp=2"
    }


def test_a_window_can_be_split_by_head_and_not_by_position(told):
    right(told["gqa window, tp 2, cp 1"], 1e-13)
    assert set(told["gqa window, tp 1, cp 4"]) == {
        "context parallelism divides whole histories; streams ['key', 'value'] keep a part"
    }


def test_parts_cannot_be_merged_without_their_sums(told):
    """Also by the rank that caches nothing yet, or the others would wait for it."""
    assert set(told["sdpa"]) == {"sdpa:flash returns no log-sum-exp, without which parts cannot be merged"}


def test_a_divided_context_takes_one_token_per_step(told):
    assert set(told["two tokens"]) == {"context parallelism takes one new token per step; got 2"}


def test_processes_that_are_no_multiple_are_refused(told):
    for said in told["three processes"]:
        assert said.endswith(f"tp x cp must divide the number of processes; got tp=3, cp=1, {WORLD} processes\n")


def test_an_attention_that_does_not_say_how_it_is_cut_is_refused():
    class Silent:
        spec = SPECS["gqa"]

    with pytest.raises(Refused, match="Silent does not say how its weights are cut by heads"):
        shard(cast(Attention, Silent()), Ranks())


def test_torchrun_must_have_started_it(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK, WORLD_SIZE and LOCAL_RANK must be set, as torchrun"):
        start("cpu", 10.0)


# parts


@pytest.mark.parametrize("block", [1, 2, 16])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_every_position_has_one_owner_and_places_leave_no_gap(ranks, block):
    turns = Turns(ranks, block)
    for tokens in (1, 7, 16, 33, 100):
        places: dict[int, list[int]] = {rank: [] for rank in range(ranks)}
        for position in range(tokens):
            places[turns.owner(position)].append(turns.place(position))
        for rank, own in places.items():
            assert own == list(range(turns.held(tokens, rank)))
        held = [turns.held(tokens, rank) for rank in range(ranks)]
        assert (sum(held), max(held) - min(held) <= block) == (tokens, True)


@pytest.mark.parametrize(("ranks", "block"), [(0, 1), (2, 0)])
def test_turns_need_ranks_and_blocks(ranks, block):
    with pytest.raises(ValueError, match="must be a whole number"):
        Turns(ranks, block)


def test_query_heads_find_their_kv_head_on_their_rank():
    for heads, kv, tp in itertools.product((8,), (1, 2, 4, 8), (1, 2, 4, 8)):
        for rank in range(tp):
            first, stop = Cut(heads).head(tp, rank)
            lowest, end = Cut(kv).head(tp, rank)
            group = heads // kv
            assert (first // group, (stop - 1) // group + 1) == (lowest, end)


def test_merged_parts_are_attention_over_all_keys():
    scores, values = normal(2, 1, 3, 12), normal(2, 12, 5)
    parts = [scores.split([7, 1, 4], dim=-1), values.split([7, 1, 4], dim=1)]
    o = torch.stack([s.softmax(-1) @ v[:, None] for s, v in zip(*parts, strict=True)])
    lse = torch.stack([s.logsumexp(-1, keepdim=True) for s in parts[0]])
    nothing = torch.zeros_like(o[:1]), torch.full_like(lse[:1], -torch.inf)
    merged, whole = merge(torch.cat([o, nothing[0]]), torch.cat([lse, nothing[1]]))
    torch.testing.assert_close(merged, scores.softmax(-1) @ values[:, None], rtol=0, atol=1e-14)
    torch.testing.assert_close(whole, scores.logsumexp(-1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", [*EIGHT, *LATENT])
def test_shards_hold_copies_of_what_they_need(name):
    module = build(EVERY[name])
    parts = [shard(module, Ranks(tp=4, tp_rank=rank)) for rank in range(4)]
    whole = module.state_dict()
    for key in whole:
        pieces = [part.part.state_dict()[key] for part in parts]  # type: ignore[attr-defined]
        assert all(piece.data_ptr() != whole[key].data_ptr() for piece in pieces)
    needed = EVERY[name].shard(4).weight_elements
    assert all(sum(p.numel() for p in part.part.parameters()) == needed for part in parts)  # type: ignore[attr-defined]


def test_a_bias_of_the_output_is_added_once():
    module = build(EIGHT["gqa 8:4, biased, normed"])
    biases = [shard(module, Ranks(tp=4, tp_rank=r)).part.o_proj.bias for r in range(4)]  # type: ignore[attr-defined]
    assert torch.equal(torch.stack(biases).sum(0), module.o_proj.bias)
