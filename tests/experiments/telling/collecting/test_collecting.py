"""Many files of records as one table: exact types, the newest row of each point, nothing half-written."""

import csv
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.record import Measurement
from experiments.records import SeriesLog
from experiments.telling.collecting import table
from experiments.telling.collecting.collected import SHOWN, Collected, collect
from tests.experiments.telling.rows import failed, row

OLD, NEW = "2025-11-29T12:00:00+00:00", "2025-11-30T12:00:00+00:00"


def keep(folder: Path, *rows: Measurement) -> Path:
    """Rows appended to one series below ``folder``."""
    SeriesLog(folder / "series").append(*rows)
    return folder


def collected(tmp_path: Path, *places: Path) -> tuple[Collected, list[dict[str, Any]], list[dict[str, str]]]:
    """What was said, the Parquet file's rows and the CSV file's."""
    told = collect(places, tmp_path / "all.parquet", tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        return told, pq.read_table(tmp_path / "all.parquet").to_pylist(), list(csv.DictReader(file))


def test_every_row_comes_back_as_it_was_from_both_files(tmp_path: Path) -> None:
    rows = [
        row("mha", us=0.1 + 0.2),
        row("mla", us=3, context=2**40, audits=""),
        failed("gqa", "step", 8, "oom", "é,\n"),
    ]
    _, read, sheet = collected(tmp_path, keep(tmp_path / "run", *rows))
    assert [Measurement(**one) for one in read] == rows
    assert [float(line["latency_us_p50"] or "nan") for line in sheet[:2]] == [0.1 + 0.2, 3.0]
    assert (sheet[1]["context"], sheet[2]["latency_us_p50"], sheet[2]["reason"]) == ("1099511627776", "", "é,\n")
    assert list(sheet[0]) == [field.name for field in dataclasses.fields(Measurement)]


def test_a_null_and_an_empty_text_differ_in_the_sheet(tmp_path: Path) -> None:
    collected(tmp_path, keep(tmp_path / "run", row(audits="", commit=None)))
    line = (tmp_path / "all.csv").read_text().splitlines()[1]
    assert '"",' in line
    assert ",," in line


def test_columns_have_the_types_of_the_fields(tmp_path: Path) -> None:
    collected(tmp_path, keep(tmp_path / "run", failed("gqa", "step", 8, "oom", "x")))
    made = pq.read_schema(tmp_path / "all.parquet")
    assert made.names == [field.name for field in dataclasses.fields(Measurement)]
    expected = {
        "key": (pa.string(), False),
        "tp": (pa.int64(), False),
        "batch": (pa.int64(), True),
        "latency_us_p50": (pa.float64(), True),  # of a table in which it is always null
        "reason": (pa.string(), True),
    }
    assert {name: (made.field(name).type, made.field(name).nullable) for name in expected} == expected
    chunk = pq.ParquetFile(tmp_path / "all.parquet").metadata.row_group(0).column(0)
    assert chunk.compression == "ZSTD"


def test_of_one_key_and_machine_the_newest_is_kept(tmp_path: Path) -> None:
    one = keep(tmp_path / "one", row(key="k", us=1.0, started_at=NEW), row(key="k", us=2.0, started_at=OLD))
    two = keep(tmp_path / "two", row(key="k", us=3.0, started_at=None), row(key="k", us=4.0, host="there"))
    told, read, sheet = collected(tmp_path, one, two)
    assert [r["latency_us_p50"] for r in read] == [1.0, 4.0]
    assert len(sheet) == 2
    assert (told.files, told.read, told.kept, told.superseded) == (2, 4, 2, 2)


def test_of_equally_old_ones_the_last_read_is_kept(tmp_path: Path) -> None:
    told, read, _ = collected(tmp_path, keep(tmp_path / "one", *(row(key="k", us=us) for us in (1.0, 2.0, 3.0))))
    assert [r["latency_us_p50"] for r in read] == [3.0]
    assert told.superseded == 2


def test_a_row_without_a_machine_is_a_machine_of_its_own(tmp_path: Path) -> None:
    rows = [row(key="k", device=None, host="None"), row(key="k", device="None", host=None), row(key="k", device=None)]
    assert len(collected(tmp_path, keep(tmp_path / "one", *rows))[1]) == 3


def test_rows_of_many_batches_keep_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "BATCH", 3)
    rows = [row(context=c) for c in range(1, 11)]
    again = [row(context=c, us=7.0, started_at=NEW, key=rows[c - 1].key) for c in (1, 5, 6, 10)]
    told, read, sheet = collected(tmp_path, keep(tmp_path / "run", *rows, *again))
    assert [r["context"] for r in read] == [2, 3, 4, 7, 8, 9, 1, 5, 6, 10]
    assert [line["context"] for line in sheet] == [str(r["context"]) for r in read]
    assert (told.read, told.kept) == (14, 10)
    assert pq.ParquetFile(tmp_path / "all.parquet").metadata.num_row_groups > 1


def test_statuses_are_counted_among_what_is_kept(tmp_path: Path) -> None:
    rows = [row(key="k"), failed("mha", "step", 8, "crash", "x", key="k", started_at=NEW, device="Xeon"), row()]
    told, _, _ = collected(tmp_path, keep(tmp_path / "run", *rows))
    assert told.statuses == {"crash": 1, "ok": 1}


def test_a_place_inside_another_is_read_once(tmp_path: Path) -> None:
    keep(tmp_path / "runs" / "a", row())
    told, _, _ = collected(
        tmp_path, tmp_path / "runs", tmp_path / "runs" / "a", tmp_path / "runs/a/series/records.jsonl"
    )
    assert (told.files, told.read) == (1, 1)


def test_torn_and_foreign_lines_are_skipped_with_a_warning(tmp_path: Path) -> None:
    file = keep(tmp_path / "run", row(), row()) / "series" / "records.jsonl"
    huge, half = '"batch":1', '"attention":"mha"'
    whole = row().to_json()
    torn = [whole.replace(huge, f'"batch":{2**63}'), whole.replace(half, r'"attention":"\ud800"'), whole[:50]]
    file.write_text(file.read_text() + "\n".join(torn))
    told, read, _ = collected(tmp_path, tmp_path / "run")
    assert (len(read), told.read, told.skipped) == (1, 2, 3)
    assert [w.split(": skipped a line: ")[0] for w in told.warnings] == [f"{file}:{n}" for n in (3, 4, 5)]
    assert "batch must fit into 64 bits" in told.warnings[0]
    assert "attention must be text that UTF-8 can hold" in told.warnings[1]
    assert told.warnings[2].endswith("(torn last line of an interrupted run)")


def test_of_very_many_warnings_the_first_are_kept(tmp_path: Path) -> None:
    file = keep(tmp_path / "run", row()) / "series" / "records.jsonl"
    file.write_text("{}\n" * (SHOWN + 5) + file.read_text())
    told, _, _ = collected(tmp_path, tmp_path / "run")
    assert (told.skipped, len(told.warnings)) == (SHOWN + 5, SHOWN)


class Payload:
    """What would make a folder if a pickle of it were loaded."""

    def __reduce__(self) -> Any:
        return Path.mkdir, (Path("ran"),)


def test_a_pickle_in_the_place_of_records_is_read_as_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("records.jsonl").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(ValueError, match="runs must hold at least one readable record"):
        collected(tmp_path, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["records.jsonl"]


def test_a_failure_leaves_earlier_files_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collected(tmp_path, keep(tmp_path / "run", row()))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("experiments.telling.collecting.collected.write_kept", full)
    with pytest.raises(OSError, match="No space left"):
        collected(tmp_path, keep(tmp_path / "run", row(us=2.0)))
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before
    assert {p.name for p in tmp_path.iterdir()} == {*before, "run"}
