"""A watched step: what it says lies in the cache and was made is what layout, geometry and a plain run say."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.measuring.prepare import weights
from experiments.measuring.series import Series
from experiments.measuring.tracing import step as tracing
from experiments.measuring.tracing.letters import of_equation
from experiments.measuring.tracing.step import run, trace
from experiments.traced import FATES, Seen, Traced
from tests.builders import config
from tests.experiments.builders import device, series
from variants.contract.cost import Point
from variants.decode import plan_step
from variants.noise import noise_
from variants.protocols import Attended

BATCH, CONTEXT = 2, 24
FORMS = ("absorbed", "materialized", "expanded")


def _every() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every yaml of conf/attention, in every form it can have, and with a window where it may have one."""
    for name, raw in config("attention").items():
        yield from ((name, {"form": form}) for form in FORMS if "form" in raw)
        yield from ((name, {"window": window}) for window in (None, 5) if "window" in raw)
        if not {"form", "window"} & set(raw):
            yield name, {}


EVERY = pytest.mark.parametrize(("name", "options"), list(_every()))


def _series(name: str, options: Mapping[str, Any], **more: Any) -> Series:
    return series(name, "eager", options=dict(options), batch=BATCH, context=CONTEXT, **more)


def _trace(what: Series) -> Traced:
    return trace(what, Point(BATCH, CONTEXT, 1, what.workload.dtype), device())


def _named(traced: Traced, stage: str, name: str) -> list[Seen]:
    return [seen for seen in traced.seen if (seen.stage, seen.name) == (stage, name)]


@EVERY
@pytest.mark.parametrize("storage", ["contiguous", "paged"])
@pytest.mark.parametrize("kv_dtype", [None, "int8"])
def test_what_persists_is_the_layout_byte_for_byte(
    name: str, options: Mapping[str, Any], storage: str, kv_dtype: str | None
) -> None:
    what = _series(name, options, storage=storage, kv_dtype=kv_dtype)
    layout, traced = what.spec.layout(what.workload.kv_dtype), _trace(what)
    assert sum(held.added for held in traced.held) == BATCH * layout.bytes_per_token
    assert sum(held.held for held in traced.held) == BATCH * layout.bytes(CONTEXT)
    assert traced.allocated == what.policy.allocated_bytes(layout, BATCH, CONTEXT)
    assert [(h.stream, h.heads, h.width) for h in traced.held] == [(s.name, s.heads, s.width) for s in layout.streams]


@EVERY
def test_shapes_are_the_geometrys(name: str, options: Mapping[str, Any]) -> None:
    what = _series(name, options)
    traced, geometry = _trace(what), (what.spec.unpacked() or what.spec).geometry()
    (q,) = _named(traced, "query", "q")
    assert (q.shape, q.letters) == ((BATCH, 1, geometry.num_q_heads, geometry.d_qk), ("B", "Q", "H", "K"))
    (scores,) = _named(traced, "attend", "scores")
    groups = (geometry.num_kv_heads, geometry.group_size)
    assert (scores.shape, scores.letters) == ((BATCH, 1, *groups, CONTEXT), ("B", "Q", "G", "H/G", "T"))
    (k,), (v,) = _named(traced, "attend", "K as read"), _named(traced, "attend", "V as read")
    assert k.shape == (BATCH, geometry.num_kv_heads, CONTEXT, geometry.d_qk)
    assert v.shape == (BATCH, geometry.num_kv_heads, CONTEXT, geometry.d_v)


def test_entries_are_called_as_the_streams_they_go_to() -> None:
    for name in config("attention"):
        what = _series(name, {})
        cached = {s.name: s.bytes for s in _trace(what).seen if s.fate == "cached"}
        streams = what.spec.layout(what.workload.kv_dtype).streams
        assert cached == {s.name: BATCH * s.entry_bytes for s in streams}


@EVERY
def test_a_watched_step_answers_as_an_unwatched_one_and_leaves_no_trace(name: str, options: Mapping[str, Any]) -> None:
    what, on = _series(name, options), device()
    x = noise_(torch.empty(BATCH, 1, what.spec.hidden_size), 3)
    position = torch.full((BATCH, 1), CONTEXT - 1)
    answers = []
    for watch in (True, False):
        cache = what.policy.allocate(what.spec.layout(what.workload.kv_dtype), BATCH, CONTEXT, on.torch)
        cache.fill_noise(CONTEXT - 1, 0)
        with torch.no_grad():
            module = weights(what, on, 0)
            step = plan_step(module, cache, what.backend, CONTEXT)
            if watch:
                run(step, x, position)
            answers.append(step(x, position))
        assert isinstance(module, nn.Module)
        assert not {"entry", "query", "output", "unpack"} & set(vars(module))
        assert "write" not in vars(cache)
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert torch.equal(*answers)


@EVERY
def test_only_the_output_outlives_the_step(name: str, options: Mapping[str, Any]) -> None:
    traced = _trace(_series(name, options))
    assert {seen.fate for seen in traced.seen} <= set(FATES) - {"kept"}
    (y,) = [seen for seen in traced.seen if seen.fate == "passed on"]
    assert (y.stage, y.name, y.letters) == ("output", "y", ("B", "Q", "D"))


def test_a_tensor_that_something_holds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Tensor] = []

    def hoarding(*args: Any) -> Any:
        step = plan_step(*args)

        def attend(q: Tensor) -> Attended:
            held.append(q.clone())
            return step.plan.attend(q)

        return replace(step, plan=replace(step.plan, attend=attend))

    monkeypatch.setattr(tracing, "plan_step", hoarding)
    assert [s.shape for s in _trace(_series("mha", {})).seen if s.fate == "kept"] == [tuple(held[0].shape)]


@pytest.mark.parametrize("name", ["mla", "gla"])
def test_keys_and_values_are_made_again_in_the_materialized_form_alone(name: str) -> None:
    absorbed, materialized = (_series(name, {"form": form}) for form in ("absorbed", "materialized"))
    assert [s for s in _trace(absorbed).seen if s.fate == "again" or s.stage == "unpack"] == []
    assert _trace(absorbed).scratch == ()
    traced, expanded = _trace(materialized), materialized.spec.unpacked()
    assert expanded is not None
    layout = expanded.layout(materialized.workload.dtype)
    assert {h.stream: h.added for h in traced.scratch} == {s.name: BATCH * s.bytes(CONTEXT) for s in layout.streams}
    (key,) = _named(traced, "unpack", "key")
    assert (key.fate, key.bytes) == ("again", BATCH * layout.stream("key").bytes(CONTEXT))


def test_a_fused_kernel_makes_no_scores_and_copies_nothing() -> None:
    what = series("gqa", "sdpa", batch=BATCH, context=CONTEXT)
    attended = [seen for seen in _trace(what).seen if seen.stage == "attend"]
    assert [seen.name for seen in attended] == ["o"]
    assert {seen.fate for seen in attended} == {"dropped"}


def test_a_full_window_overwrites_one_slot() -> None:
    what = _series("mha", {"window": 5}, storage="ring")
    for held in _trace(what).held:
        assert (held.added, held.held) == (held.held // 5, BATCH * 5 * 4 * 16 * 4)


def test_what_does_not_fit_is_refused_before_anything_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "weights", lambda *_: pytest.fail("weights were made"))
    what = _series("mha", {})
    with pytest.raises(ValueError, match=r"needs [\d,]+ B and must stay below 90% of the 1,000 B that are free"):
        trace(what, Point(BATCH, CONTEXT, 1, what.workload.dtype), device(free=1000))


def test_axes_are_read_off_the_equation() -> None:
    assert of_equation("bqghk,bgtk->bqght") == [
        ("B", "Q", "G", "H/G", "K"),
        ("B", "G", "T", "K"),
        ("B", "Q", "G", "H/G", "T"),
    ]
    assert of_equation("bqhn,hnc->bqhc")[-1] == ("B", "Q", "H", "C")
