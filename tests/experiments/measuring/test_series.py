"""From a composed config to a frozen series: what it is called, what decides it, and what cannot be one."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from experiments.measuring.messages import Failed
from experiments.measuring.point import points
from experiments.measuring.row import Where, failed_row, unbuildable_row
from experiments.measuring.series import Series, TimerChoice, parse_labels, parse_series
from experiments.measuring.workload import Cell
from experiments.record import Measurement
from tests.experiments.builders import TIMER, TINY, composed, device, series
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.backend.sdpa import Sdpa
from variants.contract import plugin
from variants.contract.cost import Point
from variants.contract.dtype import Dtype
from variants.storage.contiguous import Contiguous

KINDS = ", ".join(plugin.kinds("attention"))
BACKENDS = ", ".join(plugin.kinds("backend"))


def refusal(**changes: Any) -> str:
    """The one line that a config is refused with."""
    config = composed(**changes)
    with pytest.raises(ValueError, match=".") as refused:
        parse_series(config.values, parse_labels(config.values, config.choices, ""))
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_config_becomes_a_series() -> None:
    made = series("gqa", batch=[1, 2], context=[16, 64])
    assert isinstance(made.spec, GroupedSpec)
    assert (made.spec.num_q_heads, made.spec.num_kv_heads, made.spec.head_dim) == (4, 2, 16)
    assert (made.policy, made.backend) == (Contiguous(), Sdpa())
    assert made.timer == TimerChoice("wall", 2, 2, None)
    assert made.device == "cpu"
    assert made.labels.attention == "gqa"
    assert made.labels.kind == "grouped"
    assert points(made) == [Point(b, c, 1, Dtype.F32) for b in (1, 2) for c in (16, 64)]


def test_the_attention_is_called_as_its_file_is() -> None:
    assert [series(name).labels.attention for name in ("mha", "gqa", "mqa", "mla")] == ["mha", "gqa", "mqa", "mla"]
    assert isinstance(series("mla").spec, LatentSpec)


def test_one_rank_of_several() -> None:
    spec = series("mha", tp=2).spec
    assert isinstance(spec, GroupedSpec)
    assert (spec.num_q_heads, spec.num_kv_heads) == (2, 2)


def test_a_folder_name_can_be_read_and_is_safe() -> None:
    name = series("mla").name
    assert name.startswith("mla-contiguous-sdpa-tiny-fp32-tp1-")
    assert len(name.rsplit("-", 1)[1]) == 8
    awkward = composed("gqa")
    awkward.choices["model"] = "../my model/é:*"
    made = parse_series(awkward.values, parse_labels(awkward.values, awkward.choices, ""))
    assert made.name.startswith("gqa-contiguous-sdpa-.._my_model_é_-fp32-tp1-")
    assert "/" not in made.name


# what decides a measurement


def key(of: Series, scope: str = "step", threads: int = 2, kind: str = "cpu", context: int = 16, batch: int = 1) -> str:
    where = Where(of, Point(batch, context, of.workload.queries, of.workload.dtype), device(kind=kind), threads)
    return failed_row(where, Cell(scope, of.workload.temperatures[0]), Failed("error", "x")).key


OTHERWISE: dict[str, Callable[[], str]] = {
    "attention": lambda: key(series("mla")),
    "another name for the same spec": lambda: key(series("gqa", options={"num_kv_heads": 1})),
    "form": lambda: key(series("mla", options={"form": "expanded"})),
    "an option of the attention": lambda: key(series("mla", options={"kv_lora_rank": 32})),
    "backend": lambda: key(series(backend="eager")),
    "model": lambda: key(series(model={**TINY, "name": "other"})),
    "heads of the model": lambda: key(series(model={**TINY, "num_attention_heads": 8})),
    "rope of the model": lambda: key(series(model={**TINY, "rope_theta": 500000.0})),
    "layers": lambda: key(series(model={**TINY, "num_hidden_layers": 3})),
    "tp": lambda: key(series(tp=2)),
    "dtype": lambda: key(series(dtype="bf16")),
    "kv_dtype": lambda: key(series(kv_dtype="bf16")),
    "queries": lambda: key(series(queries=2)),
    "seed": lambda: key(series(seed=1)),
    "temperature": lambda: key(series(temperature="warm")),
    "timer": lambda: key(series(timer={"kind": "auto"})),
    "rounds": lambda: key(series(timer={"rounds": 3})),
    "replicas": lambda: key(series(timer={"replicas": 3})),
    "threads asked for": lambda: key(series(timer={"threads": 2})),
    "threads in force": lambda: key(series(), threads=1),
    "device": lambda: key(series(), kind="cuda"),
    "scope": lambda: key(series(), scope="attend"),
    "context": lambda: key(series(), context=64),
    "batch": lambda: key(series(), batch=2),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_whatever_decides_a_measurement_is_in_its_key(what: str) -> None:
    assert OTHERWISE[what]() != key(series())


def test_no_two_of_these_settings_share_a_key() -> None:
    keys = {what: make() for what, make in OTHERWISE.items()}
    assert len(set(keys.values())) == len(keys)


def test_equal_settings_give_equal_keys_and_names_whatever_surrounds_them() -> None:
    one, other = series(), series(name="elsewhere", results="/else/where", context=[64, 16, 128], scopes=["step"])
    assert key(one) == key(other)
    assert one.name == other.name
    asked_differently = composed()
    labels = parse_labels(asked_differently.values, asked_differently.choices, "another command line")
    assert key(parse_series(asked_differently.values, labels)) == key(one)
    in_a_study = composed()
    in_a_study.choices["study"] = "quick"
    labels = parse_labels(in_a_study.values, in_a_study.choices, "")
    assert labels.study == "quick"
    assert key(parse_series(in_a_study.values, labels)) == key(one)


def test_another_machine_of_the_same_kind_has_the_same_key() -> None:
    made = series()
    point = points(made)[0]
    keys = {
        failed_row(Where(made, point, on, 2), Cell("step", "cold"), Failed("error", "x")).key
        for on in (replace(device(), name=name, host=name) for name in ("a", "b"))
    }
    assert len(keys) == 1


# what cannot be a series


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"options": {"num_kv_heads": 3}},
            "num_kv_heads must be at least 1 and divide num_q_heads; got num_q_heads=4, num_kv_heads=3",
        ),
        ({"options": {"num_kv_heads": 0}}, "num_kv_heads must be at least 1 and divide num_q_heads"),
        ({"options": {"kind": "os"}}, f"attention kind must be one of {KINDS}; got 'os'"),
        ({"options": {"kind": "os.path"}}, f"attention kind must be one of {KINDS}; got 'os.path'"),
        ({"options": {"kind": "..backend.sdpa"}}, f"attention kind must be one of {KINDS}"),
        ({"options": {"kind": None}}, f"attention kind must be one of {KINDS}; got None"),
        ({"options": {"heads": 3}}, "attention: got an unexpected keyword argument 'heads'"),
        ({"backend": "antigravity"}, f"backend kind must be one of {BACKENDS}; got 'antigravity'"),
        ({"attention": "mla", "options": {"form": "melted"}}, "MLA form must be one of absorbed, materialized, expan"),
        ({"tp": 3}, "tp must be at least 1 and divide num_q_heads; got num_q_heads=4, tp=3"),
        ({"tp": 0}, "tp must be a whole number >= 1; got 0"),
        ({"tp": True}, "tp must be a whole number >= 1; got True"),
        ({"tp": "two"}, "tp must be a whole number >= 1; got 'two'"),
        ({"tp": 2.0}, "tp must be a whole number >= 1; got 2.0"),
        ({"tp": None}, "tp must be a whole number >= 1; got None"),
        ({"timer": {"kind": "sundial"}}, "timer.kind must be one of auto, wall, events, graph; got 'sundial'"),
        ({"timer": {"rounds": 0}}, "timer.rounds must be a whole number >= 1; got 0"),
        ({"timer": {"rounds": None}}, "timer.rounds must be a whole number >= 1; got None"),
        ({"timer": {"replicas": 1.5}}, "timer.replicas must be a whole number >= 1; got 1.5"),
        ({"timer": {"threads": 0}}, "timer.threads must be a whole number >= 1; got 0"),
        ({"timer": {"threads": True}}, "timer.threads must be a whole number >= 1; got True"),
        ({"timer": {"max_rounds": 0}}, "timer.max_rounds must be a whole number >= 1; got 0"),
        ({"timer": {"ci_width": 0}}, "timer.ci_width must be a number > 0; got 0"),
        ({"timer": {"budget_s": "1m"}}, "timer.budget_s must be a number > 0; got '1m'"),
        ({"timer": {"tick": 1}}, "timer: got an unexpected keyword argument 'tick'"),
        ({"device": "tpu"}, "device.kind must be one of auto, cpu, cuda; got 'tpu'"),
        ({"kv_dtype": "int4"}, "stream 'key' of int4 codes needs quant"),
        ({"model": {**TINY, "num_attention_heads": 0}}, "model.num_attention_heads must be a whole number >= 1; got 0"),
        ({"model": {**TINY, "heads": 4}}, "model has no field 'heads'"),
        ({"context": 0}, "workload.context must be a whole number >= 1"),
    ],
)
def test_configs_that_cannot_be_built(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(**changes)


@pytest.mark.parametrize("group", ["attention", "storage", "backend", "model", "workload", "timer", "device"])
@pytest.mark.parametrize("value", [None, "gqa", ...])
def test_a_group_that_is_missing_is_named(group: str, value: object) -> None:
    config = composed()
    config.choices.pop(group, None)
    config.values[group] = value
    if value is ...:
        del config.values[group]
    with pytest.raises(ValueError, match=rf"config needs the group {group}, e\.g\. {group}=NAME; got "):
        parse_labels(config.values, config.choices, "")


def test_a_timer_that_lacks_a_number_is_refused() -> None:
    config = composed()
    config.values["timer"] = {k: v for k, v in TIMER.items() if k != "rounds"}
    with pytest.raises(ValueError, match="timer: missing .*'rounds'"):
        parse_series(config.values, parse_labels(config.values, config.choices, ""))


@pytest.mark.parametrize("group", ["attention", "storage", "backend"])
@pytest.mark.parametrize(
    "kind", ["os", "this", "os.path", "..latent", "variants.backend.sdpa", "cache", "__init__", ""]
)
def test_a_kind_names_a_module_of_ours_and_imports_nothing_else(group: str, kind: str) -> None:
    config = composed()
    config.values[group] = {"kind": kind}
    before = set(sys.modules)
    with pytest.raises(ValueError, match=rf"{group} kind must be one of \w+(, \w+)*; got '{kind}'"):
        parse_series(config.values, parse_labels(config.values, config.choices, ""))
    assert set(sys.modules) == before


# a config of a sweep that cannot be built is a row


def broken(**changes: Any) -> Measurement:
    config = composed(**changes)
    return unbuildable_row(
        parse_labels(config.values, config.choices, "run it"), config.values, "a\n reason  with room"
    )


def test_an_unbuildable_config_is_an_error_row_without_a_shape() -> None:
    row = broken(tp=3, dtype="bf16")
    assert (row.status, row.reason) == ("error", "a reason with room")
    assert (row.attention, row.kind, row.storage, row.backend) == ("gqa", "grouped", "contiguous", "sdpa")
    assert (row.model, row.dtype, row.kv_dtype, row.tp, row.command) == ("tiny", "bf16", "bf16", 3, "run it")
    assert (row.batch, row.context, row.queries, row.seed, row.cache_bytes, row.num_q_heads) == (None,) * 6
    assert row.series.startswith("gqa-contiguous-sdpa-tiny-bf16-tp3-")


def test_the_model_of_an_unbuildable_row_is_called_as_in_other_rows() -> None:
    config = composed()
    config.choices["model"] = "tiny_yaml"
    labels = parse_labels(config.values, config.choices, "")
    built = parse_series(config.values, labels)
    where = Where(built, points(built)[0], device(), 2)
    unbuilt, failed = (
        unbuildable_row(labels, config.values, "x"),
        failed_row(where, Cell("step", "cold"), Failed("error", "x")),
    )
    assert unbuilt.model == failed.model == "tiny"


def test_unbuildable_configs_have_keys_and_folders_of_their_own() -> None:
    rows = [broken(options={"num_kv_heads": n}) for n in (3, 5, 3)]
    assert rows[0].key == rows[2].key != rows[1].key
    assert rows[0].series == rows[2].series != rows[1].series


def test_a_tp_that_is_no_number_still_gives_a_row() -> None:
    assert broken(tp="two").tp == 1
    assert broken(tp="two").series.startswith("gqa-contiguous-sdpa-tiny-fp32-tptwo-")


def test_a_reason_is_one_bounded_line() -> None:
    made = series()
    row = failed_row(Where(made, points(made)[0], None, 2), Cell("step", "cold"), Failed("crash", "x\n" * 2000))
    assert row.reason is not None
    assert len(row.reason) == 2000
    assert row.reason.startswith("x x x")
    assert row.reason.endswith("…")
