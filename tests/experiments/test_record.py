"""The record: what a row may say, how it is written, and what survives a killed run."""

import json
import math
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.record import SCHEMA, SCOPES, STATUSES, TIMED, Measurement, point_key
from experiments.records import RECORDS, SeriesLog, load

IDENTITY: dict[str, Any] = {
    "key": "00ff",
    "series": "mla-1",
    "attention": "mla",
    "storage": "contiguous",
    "backend": "sdpa",
    "model": "Llama ×8",
    "scope": "step",
    "dtype": "bf16",
    "kv_dtype": "bf16",
    "batch": 1,
    "context": 1024,
    "queries": 1,
    "seed": 0,
}
CLOCKED = (
    "latency_us_p10",
    "latency_us_p50",
    "latency_us_p90",
    "latency_us_ci_low",
    "latency_us_ci_high",
    "samples",
    "rounds",
    "first_call_us",
    "bandwidth_gbps",
    "tflops",
    "roofline_fraction",
)


def row(**changes: Any) -> Measurement:
    status = changes.setdefault("status", "ok")
    if status in TIMED:
        changes.setdefault("latency_us_p50", 12.5)
    if status != "ok":
        changes.setdefault("reason", "because")
    return Measurement(**{**IDENTITY, **changes})


def strict(line: str) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    parsed = json.loads(line, parse_constant=refuse)
    assert isinstance(parsed, dict)
    return parsed


def test_a_row_survives_its_line() -> None:
    full = row(
        status="quarantined", study="quick", kind="latent", tp=4, scale=0.0721687836, latency_us_p10=1, commit="é→"
    )
    line = full.to_json()
    assert "\n" not in line
    assert "é→" in line  # UTF-8 as it is, not \u escapes
    assert Measurement.from_json(line) == full
    assert strict(line)["schema"] == SCHEMA == 1
    assert list(strict(line)) == [f.name for f in fields(Measurement)]


@given(st.floats(min_value=1e-3, max_value=1e12, allow_nan=False), st.text(min_size=1), st.integers(1, 2**40))
def test_numbers_and_text_survive_exactly(us: float, reason: str, batch: int) -> None:
    made = row(status="quarantined", latency_us_p50=us, reason=reason, batch=batch)
    line = made.to_json()
    assert Measurement.from_json(line) == made
    assert "\n" not in line


@pytest.mark.parametrize("status", STATUSES)
def test_only_a_timed_status_carries_a_latency(status: str) -> None:
    timed = status in ("ok", "quarantined")
    right = row(status=status)
    assert (right.latency_us_p50 is not None) == timed
    with pytest.raises(ValueError, match=f"status {status} {'must' if timed else 'cannot'} carry latency_us_p50"):
        row(status=status, latency_us_p50=None if timed else 1.0)


@pytest.mark.parametrize("column", ["samples", "rounds", "latency_us_ci_low", "latency_us_p90"])
def test_a_predicted_row_has_a_latency_but_no_samples(column: str) -> None:
    assert row(origin="predicted").latency_us_p50 is not None
    with pytest.raises(ValueError, match=f"a predicted row has one computed latency; it cannot carry {column}"):
        row(origin="predicted", **{column: 3})


@pytest.mark.parametrize("column", CLOCKED)
def test_a_row_that_was_not_timed_carries_nothing_of_a_clock(column: str) -> None:
    value = 3 if column in ("samples", "rounds") else 3.0
    assert getattr(row(status="quarantined", **{column: value}), column) == value
    with pytest.raises(ValueError, match=f"status refused cannot carry {column}"):
        row(status="refused", **{column: value})


@pytest.mark.parametrize("status", STATUSES)
def test_only_what_broke_has_last_words(status: str) -> None:
    if status in ("oom", "timeout", "crash", "error"):
        said = row(status=status, stderr="Traceback\n  so it was\n")
        assert Measurement.from_json(said.to_json()) == said
    else:
        with pytest.raises(ValueError, match=f"status {status} cannot carry stderr"):
            row(status=status, stderr="x")


def test_tries_are_counted_from_none() -> None:
    assert row(status="refused", attempts=0).attempts == 0
    assert row().attempts is None
    with pytest.raises(ValueError, match="attempts must be >= 0; got -1"):
        row(attempts=-1)


@pytest.mark.parametrize("status", STATUSES)
def test_every_status_but_ok_says_why(status: str) -> None:
    if status == "ok":
        with pytest.raises(ValueError, match="status ok has no reason"):
            row(status="ok", reason="fine")
        return
    for missing in (None, ""):
        with pytest.raises(ValueError, match=f"status {status} needs a reason"):
            row(status=status, reason=missing)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"status": "fine", "reason": "x"}, "status must be one of"),
        ({"status": "OK"}, "status must be one of"),
        ({"scope": "all"}, "scope must be one of"),
        ({"origin": "guessed"}, "origin must be one of"),
        ({"temperature": "tepid"}, "temperature must be one of"),
        ({"latency_us_p50": 0.0}, "latency_us_p50 must be > 0; got 0.0"),
        ({"latency_us_p50": -1.0}, "latency_us_p50 must be > 0; got -1.0"),
        ({"batch": 1.0}, "batch must be int or NoneType; got 1.0"),
        ({"batch": True}, "batch must be int or NoneType; got True"),
        ({"tp": None}, "tp must be int; got None"),
        ({"model": None}, "model must be str; got None"),
        ({"series": 3}, "series must be str; got 3"),
        ({"latency_us_p50": "fast"}, "latency_us_p50 must be float or NoneType; got 'fast'"),
        ({"batch": 2**63}, "batch must fit into 64 bits; got a number of 64"),
        ({"scale": -(2**64)}, "scale must fit into 64 bits; got a number of 65"),
        ({"commit": "a\ud800"}, "commit must be text that UTF-8 can hold"),
    ],
)
def test_a_field_of_the_wrong_kind_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row(**changes)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("column", ["bandwidth_gbps", "latency_us_p50", "scale", "floor_us"])
def test_a_number_that_json_lacks_is_refused(column: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{column} must be finite"):
        row(**{column: value})


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_a_foreign_line_with_bare_nan_is_no_record(token: str) -> None:
    line = row().to_json().replace('"latency_us_p50":12.5', f'"latency_us_p50":{token}')
    assert token in line
    with pytest.raises(ValueError, match=f"{token} is not JSON"):
        Measurement.from_json(line)


def test_what_has_no_value_is_null() -> None:
    line = strict(row(status="oom").to_json())
    assert line["latency_us_p50"] is None
    assert line["bandwidth_gbps"] is None
    assert line["status"] == "oom"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 2}, "expected a record of schema 1"),
        ({"colour": "red", "zeal": 1}, r"record has unknown columns \['colour', 'zeal'\]"),
        ({"key": ...}, "record lacks columns: .*'key'"),
    ],
)
def test_lines_of_another_kind(change: dict[str, Any], message: str) -> None:
    raw = {**json.loads(row().to_json()), **change}
    line = json.dumps({k: v for k, v in raw.items() if v is not ...})
    with pytest.raises(ValueError, match=message):
        Measurement.from_json(line)


@pytest.mark.parametrize("line", ["[1]", "3", "null", '"ok"', "{}", ""])
def test_json_that_is_no_record(line: str) -> None:
    with pytest.raises(ValueError, match="."):
        Measurement.from_json(line)


def test_scopes_and_statuses_are_the_whole_list() -> None:
    assert ", ".join(STATUSES) == (
        "ok, refused, too_large, wrong, oom, timeout, crash, error, interrupted, quarantined"
    )
    assert ", ".join(SCOPES) == "attend, step, prefill, recompute, project, absorb, append, output"


# keys


def test_equal_settings_give_equal_keys_in_any_order() -> None:
    # printf '{"a": 1, "b": [1, 2], "schema": 1}' | sha256sum
    assert point_key({"a": 1, "b": [1, 2]}) == point_key({"b": [1, 2], "a": 1}) == "e45f2017300aca70"


def test_any_other_setting_gives_another_key() -> None:
    keys = {point_key(v) for v in ({"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, {"a": 1, "b": None}, {"a": [1]})}
    assert len(keys) == 6


# files


def test_rows_lie_in_their_series_file_in_the_order_appended(tmp_path: Path) -> None:
    rows = [row(context=c) for c in (1, 2, 3)]
    log = SeriesLog(tmp_path / "deep" / "mla-1")
    log.append(rows[0])
    log.append(*rows[1:])
    assert log.path == tmp_path / "deep" / "mla-1" / "records.jsonl"
    assert log.path.read_text(encoding="utf-8") == "".join(r.to_json() + "\n" for r in rows)
    assert load(tmp_path).rows == tuple(rows)
    assert load(tmp_path).warnings == ()


def test_every_append_reaches_the_disk_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = SeriesLog(tmp_path)
    seen: list[int] = []  # lines another reader would find when fsync is called: flushed before synced
    monkeypatch.setattr(os, "fsync", lambda fd: seen.append(os.fstat(fd).st_size))
    log.append(row(), row())
    log.append(row())
    line = len(row().to_json().encode()) + 1
    assert seen == [2 * line, 3 * line]


def test_series_are_read_together_and_each_from_its_own_file(tmp_path: Path) -> None:
    for name in ("b", "a"):
        SeriesLog(tmp_path / name).append(row(series=name))
    assert [r.series for r in load(tmp_path).rows] == ["a", "b"]


def test_a_torn_last_line_is_skipped_with_a_warning(tmp_path: Path) -> None:
    log = SeriesLog(tmp_path)
    log.append(row(context=1), row(context=2))
    log.path.write_bytes(log.path.read_bytes()[:-40])
    loaded = load(tmp_path)
    assert [r.context for r in loaded.rows] == [1]
    (warning,) = loaded.warnings
    assert warning.startswith(f"{log.path}:2: skipped a line: ")
    assert warning.endswith("(torn last line of an interrupted run)")


def test_an_append_after_a_torn_line_is_not_spoiled_by_it(tmp_path: Path) -> None:
    log = SeriesLog(tmp_path)
    log.append(row(context=1), row(context=2))
    log.path.write_bytes(log.path.read_bytes()[:-40])
    log.append(row(context=3))
    loaded = load(tmp_path)
    assert [r.context for r in loaded.rows] == [1, 3]
    assert len(loaded.warnings) == 1
    assert ":2: " in loaded.warnings[0]


def test_a_line_torn_inside_a_character_is_a_warning_too(tmp_path: Path) -> None:
    log = SeriesLog(tmp_path)
    log.append(row(), row(commit="é"))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[: whole.rindex("é".encode()) + 1])
    assert len(load(tmp_path).rows) == 1
    assert "torn last line" in load(tmp_path).warnings[0]


@pytest.mark.parametrize("text", ["", "\n\n", "not json\n"])
def test_files_without_a_record_give_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORDS).write_text(text)
    loaded = load(tmp_path)
    assert loaded.rows == ()
    assert len(loaded.warnings) == (1 if text.strip() else 0)


def test_blank_lines_are_not_counted_as_lost(tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text(f"\n{row().to_json()}\n\n")
    assert len(load(tmp_path).rows) == 1
    assert load(tmp_path).warnings == ()


def test_a_folder_without_records_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=f"no records.jsonl below {tmp_path}"):
        load(tmp_path)
