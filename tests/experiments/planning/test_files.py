"""Files of points: streamed, kept whole, and refused in one line that names the row and the column."""

import csv
from pathlib import Path

import pytest

from experiments.planning.columns import SHAPE, pieces
from experiments.planning.files import predict_file
from experiments.planning.oracle import read_oracle
from tests.experiments.planning.profiles import profile, shipped

HEADER = ",".join(SHAPE)
GOOD = "grouped_d128,32,8,4,8192"


def table(folder: Path, *lines: str, name: str = "points.csv") -> Path:
    """A file of these lines."""
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def answers(folder: Path, *lines: str) -> list[dict[str, str]]:
    """What a file of these lines is answered with."""
    out = folder / "out.csv"
    predict_file(shipped("h200"), table(folder, *lines), out)
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def refusal(folder: Path, *lines: str) -> str:
    """The one line that such a file is refused with; nothing is left behind."""
    path, out = table(folder, *lines), folder / "out.csv"
    with pytest.raises(ValueError, match=".") as refused:
        predict_file(profile(), path, out)
    assert sorted(p.name for p in folder.iterdir()) == ["points.csv"]
    assert "\n" not in str(refused.value)
    return str(refused.value).replace(str(path), "points.csv")


def test_three_columns_are_added_and_the_others_kept(tmp_path: Path) -> None:
    rows = answers(tmp_path, f"note,{HEADER}", f"a,{GOOD}", "b,latent_512_64,128,1,64,32768")
    assert list(rows[0]) == ["note", *SHAPE, "latency_us", "bound", "floor_us"]
    assert [(r["note"], r["bound"]) for r in rows] == [("a", "memory"), ("b", "compute")]
    assert float(rows[0]["floor_us"]) == pytest.approx(4 * (8192 * 4096 + 32 * 512) / 4580e3, rel=1e-3)
    assert float(rows[0]["latency_us"]) == pytest.approx(41.41, rel=0.08)  # public: 41.4 us at 134 MB
    assert float(rows[1]["latency_us"]) == pytest.approx(915, rel=0.08)


def test_a_measured_latency_stays_beside_the_predicted_one(tmp_path: Path) -> None:
    (row,) = answers(tmp_path, f"{HEADER},latency_us", f"{GOOD},41.4")
    assert row["given_latency_us"] == "41.4"
    assert float(row["latency_us"]) != 41.4


def test_a_file_is_the_same_in_pieces_of_any_size(tmp_path: Path) -> None:
    path = table(tmp_path, HEADER, *(f"grouped_d128,32,8,{n},1024" for n in range(1, 8)))
    whole = [row for piece in pieces(path, SHAPE) for row in piece.cells]
    assert [len(piece.rows) for piece in pieces(path, SHAPE, size=3)] == [3, 3, 1]
    assert [row for piece in pieces(path, SHAPE, size=3) for row in piece.cells] == whole


def test_a_bad_row_in_a_later_piece_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.planning.columns.pieces.__defaults__", (2,))
    said = refusal(tmp_path, HEADER, GOOD, GOOD, GOOD, "grouped_d128,32,8,4,0")
    assert said == "points.csv: row 5, column context must be a whole number from 1 to 1000000000; got '0'"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            "grouped_d64,32,8,4,8192",
            "row 2, column layout must be one of grouped_d128, latent_512_64; got 'grouped_d64'",
        ),
        ("grouped_d128,32,7,4,8192", "row 2, column kv_heads must divide q_heads; got '7'"),
        ("latent_512_64,32,2,4,8192", "row 2, column kv_heads must be 1 for a layout with one shared latent; got '2'"),
        ("grouped_d128,32,8,-4,8192", "column batch must be a whole number from 1 to 1000000000; got '-4'"),
        ("grouped_d128,32,8,4,8k", "column context must be a whole number from 1 to 1000000000; got '8k'"),
        ("grouped_d128,32,8,4,nan", "got 'nan'"),
        ("grouped_d128,32,8,4,1e3", "got '1e3'"),
        ("grouped_d128,32,8,4,", "column context must be a whole number from 1 to 1000000000; got ''"),
        ("grouped_d128,32,8,4,10000000000", "got '10000000000'"),
        ("grouped_d128,32,8,4,5000000000", "got '5000000000'"),
        ("grouped_d128,32,8,4", "row 2 must have 5 cells, as the header; got 4"),
        ("grouped_d128,32,8,4,1,1", "row 2 must have 5 cells, as the header; got 6"),
        ('"grouped_d128,32', "is no CSV"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, expected: str) -> None:
    assert expected in refusal(tmp_path, HEADER, row, GOOD)


def test_a_bad_header_is_named(tmp_path: Path) -> None:
    assert "needs the column kv_heads" in refusal(tmp_path, "layout,q_heads,batch,context", "grouped_d128,32,4,1")
    assert "has two columns 'batch'" in refusal(tmp_path, f"{HEADER},batch", f"{GOOD},1")
    assert "holds no points, only a header" in refusal(tmp_path, HEADER)
    assert "needs the column layout" in refusal(tmp_path)
    assert "rename one" in refusal(tmp_path, f"{HEADER},bound,given_bound", f"{GOOD},x,y")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="must be UTF-8 text"):
        predict_file(profile(), path, tmp_path / "out.csv")


def test_a_file_is_never_replaced_by_a_part_of_another(tmp_path: Path) -> None:
    out = table(tmp_path, "precious", name="out.csv")
    with pytest.raises(ValueError, match="column layout"):
        predict_file(profile(), table(tmp_path, HEADER, "x,1,1,1,1"), out)
    assert out.read_text() == "precious\n"
    points = table(tmp_path, HEADER, GOOD)
    with pytest.raises(ValueError, match="out must be another file than points"):
        predict_file(profile(), points, points)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        predict_file(profile(), points, tmp_path / "nowhere" / "out.csv")
    assert predict_file(profile(), points, out) == 1
    assert out.read_text().startswith(f"{HEADER},latency_us")


def test_of_several_engines_the_fastest_counts(tmp_path: Path) -> None:
    rows = (f"h200_sxm,{GOOD},43.0,slow", f"h200_sxm,{GOOD},41.4,fast", f"a100_sxm,{GOOD},9,other")
    path = table(tmp_path, f"gpu,{HEADER},latency_us,engine", *rows)
    (points,) = read_oracle(path, "h200_sxm").values()
    assert points.us.tolist() == [41.4]
    assert points.fold.tolist() == ["32:8"]


def test_an_oracle_without_the_device_or_with_a_time_that_is_none_is_refused(tmp_path: Path) -> None:
    header = f"gpu,{HEADER},latency_us"
    with pytest.raises(ValueError, match="column gpu must hold h200_sxm; got b200"):
        read_oracle(table(tmp_path, header, f"b200,{GOOD},1"), "h200_sxm")
    for bad in ("0", "-1", "inf", "nan", "fast", ""):
        with pytest.raises(ValueError, match="row 2, column latency_us must be a number > 0; got"):
            read_oracle(table(tmp_path, header, f"h200_sxm,{GOOD},{bad}"), "h200_sxm")
