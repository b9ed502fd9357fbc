"""What differs in anything but the variant and the context is never put on one page."""

from typing import Any

import pytest

from experiments.telling.frame import plain
from tests.experiments.telling.rows import failed, pages, row


@pytest.mark.parametrize(
    ("column", "other"),
    [
        ("device", "H200"),
        ("host", "there"),
        ("threads", 1),
        ("versions", "torch 2.6.0"),
        ("model", "llama-2-7b"),
        ("dtype", "fp32"),
        ("kv_dtype", "fp8_e4m3"),
        ("batch", 8),
        ("queries", 2),
        ("tp", 2),
        ("storage", "paged"),
        ("order", "sh"),
        ("origin", "predicted"),
    ],
)
def test_each_of_these_makes_a_setting_of_its_own(column: str, other: Any) -> None:
    split = pages(row("mha"), row(**{column: other}), row("gqa"))
    assert sorted(len(p.rows) for p in split) == [1, 2]
    assert len({p.slug for p in split}) == 2
    assert len({(p.title, p.differs) for p in split}) == 2


def test_of_several_backends_each_point_is_its_fastest_ok_row() -> None:
    (page,) = pages(
        row("mha", us=3.0, backend="sdpa"),
        row("mha", us=2.0, backend="eager", storage="paged"),
        row("mha", us=1.0, backend="numba", status="quarantined", reason="too fast"),
        row("mha", us=9.0, context=2048, backend="sdpa"),
        row("mha", "attend", us=5.0, backend="sdpa"),
        row("mha", us=0.5, temperature="warm", backend="numba"),
        failed("gqa", "step", 1024, "refused", "no", backend="sdpa"),
    )
    shown = ["label", "scope", "context", "temperature", "latency_us_p50"]
    assert [tuple(plain(page.rows[c])[i] for c in shown) for i in range(len(page.rows))] == [
        ("mha", "step", 1024, "cold", 2.0),
        ("mha", "step", 2048, "cold", 9.0),
        ("mha", "attend", 1024, "cold", 5.0),
        ("mha", "step", 1024, "warm", 0.5),
        ("gqa", "step", 1024, None, None),
    ]
    assert len(page.tried) == 7
    assert page.title == "Xeon, llama-3-8b, batch 1, bf16, best of eager, numba, sdpa, 2 threads"


@pytest.mark.parametrize(("column", "other"), [("batch", 8), ("dtype", "fp32"), ("device", "H200"), ("queries", 2)])
def test_a_best_is_never_taken_from_another_setting(column: str, other: Any) -> None:
    rows = [
        row(us=u, backend=b, **given) for b, u in (("sdpa", 2.0), ("eager", 1.0)) for given in ({}, {column: other})
    ]
    assert [(len(p.rows), len(p.tried)) for p in pages(*rows)] == [(1, 2), (1, 2)]


def test_variants_of_one_name_are_told_apart_across_backends() -> None:
    (page,) = pages(row("mla", backend="sdpa", form="absorbed"), row("mla", backend="eager", form="expanded"))
    assert page.variants == ["mla (absorbed)", "mla (expanded)"]


def test_a_backend_that_only_refused_stands_beside_those_that_ran() -> None:
    (page,) = pages(row("mha"), failed("mha", "step", 1024, "refused", "no CUDA", backend="flash", threads=None))
    assert (page.several, len(page.rows), len(page.tried)) == (True, 1, 2)


def test_variants_and_contexts_share_a_setting() -> None:
    (page,) = pages(row("mla", context=2048), row("gta"), row("mha"), row("gqa", scope="attend"))
    assert page.variants == ["mha", "gqa", "mla", "gta"]
    assert page.contexts() == [1024, 2048]
    assert page.slug == ""


def test_a_refused_row_that_lacks_what_only_a_run_knows_joins_those_that_ran() -> None:
    rows = [row("mha"), row("mha", batch=8), failed("mla", "step", 1024, "refused", "no", threads=None, versions=None)]
    small, large = pages(*rows)
    assert plain(small.rows["status"]) == ["ok", "refused"]
    assert plain(large.rows["status"]) == ["ok"]


def test_rows_that_agree_with_no_setting_are_not_lost() -> None:
    assert [len(p.rows) for p in pages(row("mha"), failed("mla", "step", 1024, "oom", "no", device="H200"))] == [1, 1]


def test_a_title_says_device_model_batch_and_dtype() -> None:
    (page,) = pages(row(device="Xeon\n8581C", batch=4, kv_dtype="fp8_e4m3", tp=2))
    assert (
        page.title == "Xeon 8581C, llama-3-8b, batch 4, bf16 with fp8_e4m3 cache, sdpa on contiguous, 2 threads, tp 2"
    )


def test_predicted_rows_say_so_before_anything_else() -> None:
    (page,) = pages(row(origin="predicted"))
    assert page.title.startswith("PREDICTED, not measured: ")
