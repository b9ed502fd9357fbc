"""Clocks, graphs and tiles: what they conclude from what they see."""

import itertools

import pytest

from experiments.gpu_sections.graphs import graphs
from experiments.gpu_sections.tiles import OPTIONS, tiles
from experiments.gpu_sections.timers import timers
from experiments.measuring.timing import Call
from tests.experiments.builders import Scripted
from tests.experiments.gpu_sections.rigs import called, rig


@pytest.mark.parametrize(
    ("events", "graph", "status"),
    [(1090.0, 1000.0, "ok"), (1120.0, 1000.0, "wrong"), (880.0, 1000.0, "wrong"), (200.0, 100.0, "ok")],
)
def test_clocks_agree_on_long_calls(events: float, graph: float, status: str) -> None:
    """What is short is mostly launch."""
    clocks = Scripted(itertools.repeat(events)), Scripted(itertools.repeat(graph))
    rows = list(timers(rig(events=clocks[0], graph=clocks[1])))
    assert [row["case"] for row in rows] == ["product of 1024", "attend gqa8 2 x 16", "attend gqa8 2 x 48"]
    assert {(row["status"], row["events_us"], row["graph_us"]) for row in rows} == {(status, events, graph)}


def test_replays_repeat_and_see_new_inputs() -> None:
    right = {"status": "ok", "first": True, "again": True, "other": True, "back": True}
    assert list(graphs(rig())) == [
        {"case": case, **right} for case in ("attend gqa8", "step gqa8", "attend mla", "step mla")
    ]


def test_a_graph_that_holds_its_first_answer_is_wrong() -> None:
    """Its output is not written again, so that the poison stays."""

    def once(call: Call) -> Call:
        call()
        return lambda: None

    for row in graphs(rig(captured=once)):
        assert row == {
            "case": row["case"],
            "status": "wrong",
            **dict.fromkeys(("first", "again", "other", "back"), False),
        }


def test_a_replay_that_writes_elsewhere_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that changes the cache otherwise than a plain run did."""
    from variants.storage.cache import Cache

    write = Cache.write
    count = itertools.count()

    def drifting(self: Cache, entries, position):
        drift = max(0, next(count) - 2) % 2  # plain, plain, captured; then every second one
        write(self, entries, position - drift)

    monkeypatch.setattr(Cache, "write", drifting)
    rows = {row["case"]: row["status"] for row in graphs(rig(captured=called))}
    assert rows["attend gqa8"] == "ok"
    assert rows["step gqa8"] == "wrong"


def test_tiles_are_compared_with_the_default() -> None:
    rows = list(tiles(rig(us=20.0)))
    shapes = {row["case"].split(" default")[0] for row in rows if row["case"].endswith(" default")}
    assert shapes == {
        "mla 32 2x48 ours",
        "gqa8 16 2x48 ours",
        "mla 32 1x48 ours",
        "gqa8 16 1x48 ours",
        "gla2 32 2x48 ours",
        "mha 16 2x48 ours",
    }
    assert len(rows) == len(shapes) * len(OPTIONS)
    timed = [row for row in rows if row["status"] == "ok"]
    assert {(row["latency_us"], row["over_default"]) for row in timed} == {(20.0, 1.0)}
    assert {row["case"].split(" ours ")[1] for row in timed} == {
        "default",
        *(f"chunk={n}" for n in (256, 512, 1024, 2048, 4096)),
    }
    refused = {row["case"].split(" ours ")[1]: row["reason"] for row in rows if row["status"] == "refused"}
    assert set(refused) == {"partials=bf16", "guarded=True"}
    assert "unexpected keyword argument 'partials'" in refused["partials=bf16"]


def test_a_backend_that_is_not_there_refuses_every_tile() -> None:
    rows = list(tiles(rig(ours="triton_nowhere")))
    assert len(rows) == 6 * len(OPTIONS)
    assert {row["status"] for row in rows} == {"refused"}
