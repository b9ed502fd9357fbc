"""Figures of what was not run: each number against the specs, each sentence against its number, none without data."""

from pathlib import Path
from typing import Any

import pytest

from experiments.foretold import foreteller
from experiments.planned import planner
from experiments.record import Measurement
from experiments.telling.evidence import front, read_evidence
from experiments.telling.figures.sizes import falls_below
from experiments.telling.foretold import held
from experiments.telling.gallery import sections
from experiments.telling.ranks import HEADING as RANKS
from experiments.telling.room import HEADING as ROOM
from experiments.telling.room import room_of
from experiments.telling.scene import Scene
from experiments.telling.section import Section
from experiments.telling.tell import Beside, tell
from experiments.telling.throughput import servings
from tests.builders import CONF
from tests.experiments.telling.rows import failed, pages, row, rule, write

GB = 10**9
LAYERS = 32
PLAN = planner(CONF)(["llama-3-8b"])
H200: dict[str, Any] = {"device": "NVIDIA H200", "origin": "predicted", "threads": None}


def scene(folder: Path, *rows: Measurement, **given: Any) -> Scene:
    asked = rule(**{name: given.pop(name) for name in ("needs", "context") if name in given})
    return Scene(pages(*rows), asked, folder, {"llama-3-8b": 6 * GB}, **{"plan": PLAN, **given})


def of(found: list[Section], heading: str) -> Section:
    (it,) = [section for section in found if section.heading == heading]
    return it


def cells(found: list[Section], heading: str) -> dict[str, tuple[str, ...]]:
    table = of(found, heading).blocks[0].table
    assert table is not None
    return {line[0]: line[1:] for line in table.rows}


def test_a_latent_is_whole_on_every_rank_and_heads_are_split_then_repeated(tmp_path: Path) -> None:
    found = sections(scene(tmp_path, *(row(a, context=1024) for a in ("mha", "gqa", "mqa", "mla"))))
    assert cells(found, RANKS) == {  # 32 layers x 1024 tokens x bytes per token and layer of one rank
        "mha": ("512 MiB", "256 MiB", "128 MiB", "64 MiB", "32 MiB"),
        "gqa": ("128 MiB", "64 MiB", "32 MiB", "16 MiB", "16 MiB"),
        "mqa": ("16 MiB",) * 5,
        "mla": ("36 MiB",) * 5,
    }
    notes = of(found, RANKS).blocks[0].notes
    assert "gqa takes less of a device than mla from tp 4." in notes
    assert "mha takes less of a device than mla from tp 16." in notes
    assert len(notes) == 2


def test_a_curve_that_only_touches_another_is_not_below_it() -> None:
    assert falls_below({"whole": [(1, 4.0), (2, 4.0)], "split": [(1, 8.0), (2, 4.0)]}) == []


def test_a_variant_whose_rows_hold_another_cache_is_named_and_not_drawn(tmp_path: Path) -> None:
    found = sections(scene(tmp_path, row("mha"), row("gqa", cache_bytes=1024 * 2048)))
    assert list(cells(found, RANKS)) == ["mha"]
    assert any(note.startswith("Not counted: gqa") for note in of(found, RANKS).blocks[0].notes)


def test_sequences_fit_into_the_memory_that_was_asked_for(tmp_path: Path) -> None:
    found = sections(scene(tmp_path, row("mha", context=1024), row("mla", context=1024), needs={"memory": "60GB"}))
    contexts = [1024 << n for n in range(8)]
    assert cells(found, ROOM) == {
        name: tuple(f"{60 * GB // (LAYERS * c * size):,}" for c in contexts)
        for name, size in {"mha": 16384, "mla": 1152}.items()
    }
    assert "as asked for" in str(of(found, ROOM).blocks[0].notes[0])


def test_without_a_wish_memory_is_the_devices_less_its_share_of_the_weights(tmp_path: Path) -> None:
    it = scene(tmp_path, row("mha", **H200))
    found = room_of(it, it.pages[0])
    assert found is not None
    assert found.bytes == 141 * GB - 2 * 8_030_261_248
    assert found.said == "NVIDIA H200, tp 1: 141 GB less 16.06 GB of weights, bf16, nothing reserved"


def test_where_weights_leave_nothing_a_sentence_stands_and_no_figure(tmp_path: Path) -> None:
    found = sections(scene(tmp_path, row("mha", context=1024), needs={"memory": "1MB"}))
    (block,) = of(found, ROOM).blocks
    assert "Nothing fits: 976.6 KiB" in str(block.text)
    assert block.figure is None
    assert not (tmp_path / "capacity.png").exists()


@pytest.mark.parametrize("given", [{"plan": None}, {"plan": {**(PLAN or {}), "models": []}}])
def test_nothing_is_drawn_of_what_is_not_known(tmp_path: Path, given: dict[str, Any]) -> None:
    assert sections(scene(tmp_path, row("mha"), row("mla"), needs={"memory": "60GB"}, **given)) == []
    assert list(tmp_path.iterdir()) == []


def test_tokens_per_second_are_the_batch_over_the_time_of_all_layers(tmp_path: Path) -> None:
    rows = [
        row("mha", us=us, batch=b, latency_us_ci_low=us / 2, latency_us_ci_high=us * 2)
        for b, us in ((1, 100.0), (4, 200.0))
    ]
    (it,) = servings(scene(tmp_path, *rows))
    one, four = it.served
    assert (one.alone, four.alone) == pytest.approx((1 / (LAYERS * 100e-6), 4 / (LAYERS * 200e-6)))
    assert one.interval == pytest.approx((one.alone / 2, one.alone * 2))
    beside = 2 * 6 * GB / 30 / 1e6  # ms: bf16 over the read ceiling of the rows, GB/s
    assert one.other_ms == pytest.approx(beside)
    assert one.whole == pytest.approx(1e3 / (LAYERS * 0.1 + beside))


def test_a_batch_whose_caches_do_not_fit_is_off_the_line_and_named(tmp_path: Path) -> None:
    rows = [row("mha", batch=b) for b in (1, 4)]
    found = sections(scene(tmp_path, *rows, needs={"memory": "1GB"}))
    (it,) = servings(scene(tmp_path, *rows, needs={"memory": "1GB"}))
    assert [one.fits for one in it.served] == [True, False]
    assert of(found, "Tokens per second over the batch").blocks[0].notes[0].endswith("mha at batch 4.")


def test_one_batch_is_no_curve_and_a_failed_one_is_a_mark(tmp_path: Path) -> None:
    assert servings(scene(tmp_path, row("mha"), row("mla"))) == []
    rows = [row("mha", batch=1), row("mha", batch=2), row("gqa", batch=1)]
    (it,) = servings(scene(tmp_path, *rows, failed("gqa", "step", 1024, "oom", "no memory", batch=2)))
    assert it.absent == (("gqa", 2),)


def test_mixed_devices_are_never_on_one_line(tmp_path: Path) -> None:
    assert servings(scene(tmp_path, row("mha", batch=1), row("mha", batch=4, device="another"))) == []


def test_the_error_is_relative_to_what_was_measured(tmp_path: Path) -> None:
    rows = [row("mha", key="a", us=100.0), row("mha", key="b", us=100.0, context=2048)]
    (it,) = held(scene(tmp_path, *rows, foretell=lambda _: {"a": 110.0, "b": 50.0}))
    assert [pair.error for pair in it.pairs] == pytest.approx([0.1, 0.5])
    assert it.said == "median error step 30 % (n = 2); 50 % of all points inside the band"
    assert held(scene(tmp_path, *rows, foretell=lambda _: {"a": 110.0})) == []


def test_predicted_rows_are_not_held_against_predictions(tmp_path: Path) -> None:
    rows = [row("mha", **H200, key="a"), row("mha", **H200, key="b", context=2048)]
    assert held(scene(tmp_path, *rows, foretell=lambda given: {r["key"]: 1.0 for r in given})) == []


def _measured(**given: Any) -> dict[str, Any]:
    """A row of GQA on an H200: its bytes and FLOPs by hand, for 32 heads of 128 and 8 cached ones."""
    tokens, heads, width = 4096, 32, 128
    moved = 2 * (2 * 8 * width * tokens + 2 * heads * width)
    return row(
        "gqa",
        "attend",
        tokens,
        model="Llama-3-8B",
        device="NVIDIA H200",
        io_bytes=moved,
        flops=4 * heads * width * tokens,
        **given,
    ).columns()


def test_a_row_is_foretold_only_for_its_own_device_bytes_and_flops() -> None:
    tell_ = foreteller(CONF)
    rows = [_measured(key="right"), {**_measured(key="other"), "device": "Xeon"}]
    rows += [{**_measured(key="bytes"), "io_bytes": 1}, {**_measured(key="scope"), "scope": "prefill"}]
    rows += [{**_measured(key="model"), "model": "mine"}, {**_measured(key="name"), "attention": "mine"}]
    found = tell_(rows)
    assert list(found) == ["right"]
    read = 2 * 2 * 8 * 128 * 4096 / 4480e3  # us at the best rate that a kernel has shown; the rest is launches
    assert read < found["right"] < read + 20


def test_the_front_of_a_paper_is_what_none_of_it_beats() -> None:
    found = {it.name: [f.name for f in front(it)] for it in read_evidence(CONF / "evidence", "all")}
    assert found["gqa_t5_xxl"] == ["MQA-XXL", "GQA-8-XXL", "MHA-XXL"]
    assert found["mlra_2_9b"] == ["MQA", "MLA"]  # GLA-2 caches as much as MLA and is worse
    assert found["deepseek_v2_dense"] == []


@pytest.mark.slow
def test_every_figure_of_a_section_is_in_both_pages_with_its_table(tmp_path: Path) -> None:
    write(tmp_path / "runs", *(row(a, batch=b, **H200) for a in ("mha", "mla") for b in (1, 4)))
    told = tell(tmp_path / "runs", tmp_path / "out", rule(), "again", Beside(planner=planner(CONF)))
    markdown = told.page.read_text(encoding="utf-8")
    html = told.page.with_name("report.html").read_text(encoding="utf-8")
    for stem in ("devices", "capacity", "01-batch-1-throughput"):
        assert f"](figures/{stem}.png)" in markdown
        assert {f"{stem}{suffix}" for suffix in (".png", ".svg")} <= {
            p.name for p in (tmp_path / "out" / "figures").iterdir()
        }
    assert html.count("<figure>") == html.count("<details>") == markdown.count("![")
