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
        ("backend", "eager"),
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
