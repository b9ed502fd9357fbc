"""Records become a table in which nothing is lost, merged or averaged."""

from pathlib import Path

from experiments.records import RECORDS, Loaded, load
from experiments.telling.frame import plain, records, tidy
from tests.experiments.telling.rows import failed, row, table, write


def test_of_one_key_the_newest_row_wins_and_the_others_are_counted() -> None:
    old, new, other_key = (
        row(us=100.0, key="k", started_at="2025-11-29T12:00:00+00:00"),
        row(
            us=80.0, key="k", started_at="2025-11-29T12:30:00+02:00"
        ),  # 10:30 UTC: the older one, whatever its text says
        row(us=60.0, key="other", context=2048),
    )
    told = table(old, new, other_key)
    assert plain(told.table["latency_us_p50"]) == [100.0, 60.0]
    assert (told.read, told.superseded) == (3, 1)
    assert "1 older rows superseded" in told.warnings[0]


def test_of_equally_old_rows_the_last_read_wins() -> None:
    told = table(row(us=1.0, key="k", started_at=None), row(us=2.0, key="k", started_at=None))
    assert plain(told.table["latency_us_p50"]) == [2.0]


def test_a_row_of_another_machine_is_no_duplicate() -> None:
    told = table(row(key="k", device="A"), row(key="k", device="B"))
    assert len(told.table) == 2
    assert told.superseded == 0


def test_columns_keep_their_types_and_nulls() -> None:
    (only,) = records(table(row(cache_bytes=2**40 + 1, page_size=None)).table)
    assert only["cache_bytes"] == 2**40 + 1
    assert isinstance(only["cache_bytes"], int)
    assert only["page_size"] is None


def test_bytes_per_sequence_and_token_follow_from_the_whole_batch() -> None:
    (only,) = records(table(row(batch=4, context=1024, cache_bytes=4 * 1024 * 1152)).table)
    assert only["bytes_per_sequence"] == 1024 * 1152
    assert only["bytes_per_token"] == 1152


def test_a_variant_is_called_by_what_tells_it_apart() -> None:
    rows = [row("mha"), row("mla", form="absorbed"), row("mla", form="expanded"), row("gqa", num_kv_heads=8)]
    told = table(*rows, failed("mla", "step", 2048, "refused", "no"))
    assert plain(told.table["label"]) == ["mha", "mla (absorbed)", "mla (expanded)", "gqa", "mla"]


def test_rows_that_differ_by_key_alone_are_kept_apart_and_named() -> None:
    told = table(row(key="a", us=1.0), row(key="b", us=9.0))
    assert plain(told.table["repeat"]) == [0, 1]
    assert any("repeat a point under another key" in w and "b" in w for w in told.warnings)


def test_rows_of_two_commits_in_one_setting_are_pointed_out() -> None:
    told = table(row(commit="aaa"), row(context=2048, commit="bbb"))
    assert any("2 commits: aaa, bbb" in w for w in told.warnings)


def test_a_torn_last_line_is_a_warning_that_does_not_depend_on_the_place(tmp_path: Path) -> None:
    folder = write(tmp_path / "quick", row("mha"), row("mha", context=2048))
    path = folder / "mha" / RECORDS
    path.write_bytes(path.read_bytes()[:-40])
    told = tidy(load(folder), folder)
    assert len(told.table) == 1
    assert told.warnings[0].startswith(f"mha/{RECORDS}:2: ")
    assert str(tmp_path) not in told.warnings[0]


def test_an_empty_table_has_all_columns() -> None:
    assert {"label", "setting", "bytes_per_token"} <= set(tidy(Loaded((), ()), Path("x")).table.columns)


def test_a_row_of_an_older_schema_is_left_out_and_said(tmp_path: Path) -> None:
    write(tmp_path, row(series="s"))
    records_file = tmp_path / "s" / RECORDS
    line = records_file.read_text()
    records_file.write_text(line.replace('"schema":1', '"schema":0') + line)
    told = tidy(load(tmp_path), tmp_path)
    assert len(told.table) == 1
    assert any("expected a record of schema 1" in w for w in told.warnings)


def test_rows_that_copy_keys_and_values_are_pointed_out_with_their_kernels() -> None:
    """C10: that GQA is slower than MHA in float32 must not be read without this."""
    told = table(
        row("mha", kernel="sdpa:flash", audits="transient=ok (9 B a call, cache 4096 B)"),
        row("gqa", kernel="sdpa:math", audits="oracle=ok (), transient=note (4096 B a call, cache 1024 B)"),
        row("mla", kernel="unsaid"),
    )
    (said,) = [w for w in told.warnings if "expands keys and values" in w]
    assert said.startswith("1 rows are of kernels that allocate more than a tenth of the cache in a call")
    assert said.endswith("kernels: sdpa:math")
