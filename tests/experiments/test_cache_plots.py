"""The figures of the cache door: what their curves say, and that nothing else waits for them."""

import json
from itertools import pairwise

import pytest

from experiments.cache import cache
from experiments.planning import curves
from experiments.planning.fits import Budget
from experiments.planning.formats import parse_format
from experiments.planning.hf.presets import preset
from experiments.planning.hf.read import read_config
from experiments.sized import BENDS, STRAIGHT, Shown, draw_sizes, shortened
from experiments.telling.figures import sizes
from experiments.telling.figures.canvas import save
from experiments.telling.figures.sizes import Sheet, draw_cache, draw_devices
from tests.golden.models import MODELS

BF16 = parse_format("bf16")
FIGURES = ("cache-context", "device-tp", "capacity-context")


def golden(*names):
    return {name: read_config(MODELS[name].config, name) for name in names}


def sheet(points, **changes):
    told = {"stem": "figure", "heading": "Heading", "title": "title", "panel": "panel", "label": "bytes"}
    return Sheet(**{**told, "points": points, "gaps": "it cannot be", **changes})


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws a sheet and hands out its figure and alt text."""
    figures = []

    def keep(figure, *rest):
        figures.append(figure)
        save(figure, *rest)

    monkeypatch.setattr(sizes, "save", keep)

    def draw(how, what):
        told = how(what, tmp_path)
        return figures[-1], told

    return draw


def test_a_window_bends_its_curve_and_a_latent_does_not():
    found = curves.over_context(golden("gpt-oss-20b", "DeepSeek-V3"), BF16, [8192])
    steps = {name: dict(pairwise(y for _, y in line)) for name, line in found.items()}
    assert {after / before for before, after in steps["DeepSeek-V3"].items()} == {2.0}
    growth = [after / before for before, after in steps["gpt-oss-20b"].items()]
    assert growth[0] == 2.0  # from 64 to 128 tokens the window of 128 still fills
    assert growth[1] == 1.5  # to 256 only the 12 full layers of 24 grow
    assert growth[1:] == sorted(growth[1:])
    assert 1.99 < growth[-1] < 2


def test_mla_is_flat_over_tp_and_crosses_gqa_8_between_2_and_4():
    models = curves.named({"llama3_70b": read_config(preset("llama3_70b"), "llama3_70b")})
    found = {name: dict(line) for name, line in curves.over_tp(models, BF16, 1, [32, 128]).items()}
    mla, gqa = found["MLA 512+64"], found["GQA-8"]
    assert {tp: mla[tp] for tp in (1, 2, 4, 8, 16, 32)} == dict.fromkeys((1, 2, 4, 8, 16, 32), 80 * 1152)
    assert [gqa[tp] for tp in (1, 2, 4, 8, 16)] == [80 * 4096 // n for n in (1, 2, 4, 8, 8)]
    assert [tp for tp in (1, 2, 4, 8) if (mla[tp] or 0) < (gqa[tp] or 0)] == [1, 2]
    assert gqa[128] is None  # 64 query heads


def test_sequences_that_fit_fall_with_context_and_end_where_none_does():
    models = golden("Llama-3.1-70B")
    budgets = {"Llama-3.1-70B": Budget(weights=140 * 10**9, memory=20 * 10**9, count=8)}
    (line,) = curves.sequences_over_context(models, BF16, [2**20], 8, budgets).values()
    room = 20 * 10**9 - 140 * 10**9 // 8
    assert dict(line) == {1 << n: (room // (40_960 << n)) or None for n in range(10, 21)}
    assert line[-1] == (2**20, None)
    (none,) = curves.sequences_over_context(models, BF16, [8192], 1, budgets).values()
    assert {count for _, count in none} == {None}


def test_coinciding_curves_are_one_and_the_family_looks_as_in_reports(drawn):
    figure, told = drawn(
        draw_cache,
        sheet(
            {
                "model": [(1024, 2048), (2048, 4096)],
                "GQA-8": [(1024, 2048), (2048, 4096)],
                "MHA": [(1024, 4096), (2048, 8192)],
            }
        ),
    )
    (ax,) = figure.axes
    lines = {tuple(line.get_ydata()): line.get_color() for line in ax.lines if len(line.get_xdata()) == 2}
    assert lines == {(4096.0, 8192.0): "#0173b2", (2048.0, 4096.0): "#029e73"}
    assert [t.get_text() for t in ax.texts if t.get_text()] == ["MHA", "model = GQA-8"]
    assert "MHA 8 KiB at 2048, model = GQA-8 4 KiB at 2048" in told.alt
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_curves_of_many_equal_models_are_called_by_one(drawn):
    names = ["Llama-4-Maverick-17B", "Llama-4-Scout-17B-16E", "Llama-4-Scout-17B-Instruct"]
    figure, _ = drawn(draw_cache, sheet({name: [(1, 64), (2, 128)] for name in names}))
    assert [t.get_text() for t in figure.axes[0].texts if t.get_text()] == ["Llama-4-Maverick-17B and 2 equal"]


def test_more_models_than_can_be_told_apart_are_refused():
    (model,) = golden("Llama-3.1-8B").values()
    with pytest.raises(ValueError, match="plots can tell at most 16 models apart; got 17"):
        curves.named({str(number): model for number in range(17)})


def test_what_cannot_be_is_marked_on_the_axis_and_explained(drawn):
    figure, told = drawn(draw_devices, sheet({"model": [(1, 64), (2, 32), (3, None)]}))
    (ax,) = figure.axes
    assert [list(line.get_xdata()) for line in ax.lines if line.get_marker() == "x"] == [[3]]
    assert told.remarks == ("x on the axis: it cannot be.",)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2", "3"]


def test_the_panel_speaks_of_windows_only_where_one_fills(tmp_path):
    for name, said in (("gpt-oss-20b", BENDS), ("DeepSeek-V3", STRAIGHT)):
        draw_sizes(Shown(golden(name), BF16, [8192], [1], {}), tmp_path / name)
        assert said in (tmp_path / name / "cache-context.svg").read_text()


def test_the_door_draws_one_model_beside_others_in_its_place(tmp_path, capsys):
    asked = ["config=llama3_70b", "memory=80GB", "devices=8", "weights=140GB", f"plots={tmp_path / 'new' / 'folder'}"]
    assert cache(asked) == 0
    files = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert files == {f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    assert "capacity-context.png" in capsys.readouterr().out


def test_the_door_draws_several_models_and_leaves_out_what_cannot_be_stored(tmp_path):
    for name in ("gpt-oss-20b", "DeepSeek-V3"):
        (tmp_path / f"{name}.json").write_text(json.dumps(MODELS[name].config))
    (tmp_path / "bad.json").write_text("{}")
    assert cache([f"models={tmp_path}", "kv_dtype=fp8_ds_mla", f"plots={tmp_path / 'plots'}"]) == 3
    svg = (tmp_path / "plots" / "cache-context.svg").read_text()
    assert {path.stem for path in (tmp_path / "plots").iterdir()} == set(FIGURES[:2])
    assert "DeepSeek-V3 -->" in svg
    assert "Left out: gpt-oss-20b: kv_dtype fp8_ds_mla packs an MLA latent" in svg


def test_models_are_called_by_their_file_or_folder_unless_two_would_be_the_same():
    models = golden("gpt-oss-20b", "DeepSeek-V3", "Llama-3.1-8B")

    def called(*labels):
        shown = Shown(dict(zip(labels, models.values(), strict=False)), BF16, [1], [1], {})
        return list(shortened(shown).models)

    assert called("a/one.json", "b/two/config.json", "llama3_70b") == ["one", "two", "llama3_70b"]
    assert called("a/config.json", "b/a.json") == ["a/config.json", "b/a.json"]


def test_figures_of_nothing_are_refused(tmp_path):
    for name in ("gpt-oss-20b", "Gemma-3-27B"):
        (tmp_path / f"{name}.json").write_text(json.dumps(MODELS[name].config))
    with pytest.raises(ValueError, match="plots need a model that can be cached in fp8_ds_mla; got none"):
        cache([f"models={tmp_path}", "kv_dtype=fp8_ds_mla", f"plots={tmp_path / 'plots'}"])
    assert not (tmp_path / "plots").exists()
