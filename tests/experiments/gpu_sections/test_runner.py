"""Sections run in turn within their time; rows are on the disk as they come, the bundle after each section."""

import json
import signal
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from experiments.gpu_sections.journal import BUNDLE, LOG, Journal, read, text
from experiments.gpu_sections.rig import Rig, Row, Section
from experiments.gpu_sections.runner import GRACE_S, SECTIONS, TOTAL_S, run, select
from tests.experiments.builders import Clock
from tests.experiments.gpu_sections.rigs import rig

OK = {"case": "a", "status": "ok"}


class Stage:
    """Sections on a clock that they move."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.folder = folder
        self.closed: list[str] = []

    def seconds(self) -> float:
        return self.clock.now / 1e9

    def section(self, *takes: float, limit: float = 10.0, end: Callable[[], None] = lambda: None) -> Section:
        """A row after so many seconds each."""

        def rows(_: Rig) -> Iterator[Row]:
            try:
                for number, seconds in enumerate(takes):
                    self.clock.sleep(seconds * 1e3)
                    yield {"case": str(number), "status": "ok"}
                end()
            finally:
                self.closed.append("closed")

        return Section(rows, limit)

    def run(self, sections: Mapping[str, Section], names: list[str] | None = None) -> Journal:
        journal = Journal(self.folder, "commit", names or list(sections))
        run(rig(), names or list(sections), journal, sections, self.seconds)
        return journal


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "out")


def seen(journal: Journal) -> list[tuple[str, str, str]]:
    return [(row["section"], row["case"], row["status"]) for row in journal.rows]


def log(folder: Path) -> list[Row]:
    return [json.loads(line) for line in (folder / LOG).read_text().splitlines()]


def test_all_sections_together_stay_under_five_minutes() -> None:
    assert list(SECTIONS) == ["env", "ceilings", "oracle", "timers", "graph", "studies", "race"]
    assert sum(section.seconds for section in SECTIONS.values()) <= TOTAL_S
    assert TOTAL_S + GRACE_S <= 300


def test_sections_are_selected_by_name_in_their_own_order() -> None:
    assert select(None) == select("") == list(SECTIONS)
    assert select("race, env") == ["env", "race"]
    with pytest.raises(ValueError, match=r"no section is called 'fast'; there are env, ceilings, oracle, "):
        select("env,fast")


def test_rows_and_the_end_of_each_section(stage: Stage) -> None:
    journal = stage.run({"one": stage.section(1, 2), "two": stage.section(3)})
    assert seen(journal) == [
        ("one", "0", "ok"),
        ("one", "1", "ok"),
        ("one", "section", "ok"),
        ("two", "0", "ok"),
        ("two", "section", "ok"),
    ]
    assert [row["seconds"] for row in journal.rows if row["case"] == "section"] == [3.0, 3.0]
    assert journal.clean
    assert sorted(p.name for p in stage.folder.iterdir()) == [BUNDLE, LOG]
    assert log(stage.folder) == read(stage.folder / BUNDLE) == journal.rows
    assert {(row["started_at"], row["commit"]) for row in journal.rows} == {(journal.started_at, "commit")}


def test_a_section_out_of_time_ends_and_the_next_one_runs(stage: Stage) -> None:
    journal = stage.run({"slow": stage.section(4, 4, 4, 4), "next": stage.section(1)})
    assert seen(journal) == [
        *(("slow", str(number), "ok") for number in range(3)),
        ("slow", "section", "timeout"),
        ("next", "0", "ok"),
        ("next", "section", "ok"),
    ]
    assert stage.closed == ["closed", "closed"]
    assert not journal.clean


def test_time_in_all_is_limited_too(stage: Stage) -> None:
    long = stage.section(TOTAL_S - 5, limit=TOTAL_S)
    journal = stage.run({"long": long, "cut": stage.section(4, 4, 4), "late": stage.section(1)})
    assert seen(journal)[2:] == [
        ("cut", "0", "ok"),
        ("cut", "1", "ok"),
        ("cut", "section", "timeout"),
        ("late", "section", "timeout"),
    ]


def test_a_section_that_fails_says_why(stage: Stage) -> None:
    def fail() -> None:
        raise RuntimeError("no\nluck")

    journal = stage.run({"bad": stage.section(1, end=fail), "next": stage.section(1)})
    assert seen(journal)[:2] == [("bad", "0", "ok"), ("bad", "section", "error")]
    assert journal.rows[1]["reason"] == "RuntimeError: no luck"
    assert seen(journal)[-1] == ("next", "section", "ok")


def test_a_section_that_does_not_come_back_is_broken_off(stage: Stage) -> None:
    """Even where every single case catches whatever goes wrong."""

    def stuck() -> None:
        try:
            signal.raise_signal(signal.SIGALRM)
        except Exception:
            pytest.fail("swallowed")

    before = signal.getsignal(signal.SIGALRM)
    journal = stage.run({"stuck": stage.section(1, end=stuck), "next": stage.section(1)})
    assert seen(journal)[1] == ("stuck", "section", "timeout")
    assert journal.rows[1]["reason"] == "broken off 10 s after its 10 s"
    assert seen(journal)[-1] == ("next", "section", "ok")
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_the_alarm_is_set_to_ring_after_the_grace(stage: Stage) -> None:
    left: list[float] = []
    stage.run({"one": stage.section(1, end=lambda: left.append(signal.getitimer(signal.ITIMER_REAL)[0]))})
    assert 10.0 < left[0] <= 10.0 + GRACE_S


def test_what_an_interrupted_run_has_seen_is_in_the_bundle(stage: Stage) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stage.run({"one": stage.section(1, 1, end=stop), "two": stage.section(1)})
    statuses = [(row["case"], row["status"]) for row in read(stage.folder / BUNDLE)]
    assert statuses == [("0", "ok"), ("1", "ok"), ("section", "interrupted")]


def test_every_row_is_in_the_log_before_the_next_one_is_made(stage: Stage) -> None:
    lengths: list[int] = []

    def rows(_: Rig) -> Iterator[Row]:
        for number in range(3):
            lengths.append(len(log(stage.folder)))
            yield {"case": str(number), "status": "ok"}

    stage.run({"one": Section(rows, 10)})
    assert lengths == [0, 1, 2]


def test_a_part_run_again_replaces_its_own_rows_only(stage: Stage) -> None:
    stage.run({"one": stage.section(1), "two": stage.section(1, 1)})
    journal = stage.run({"one": stage.section(1), "two": stage.section(5)}, ["two"])
    rows = read(stage.folder / BUNDLE)
    assert [(row["section"], row["case"]) for row in rows] == [
        ("one", "0"),
        ("one", "section"),
        ("two", "0"),
        ("two", "section"),
    ]
    assert rows[3]["seconds"] == 5.0
    assert log(stage.folder) == journal.rows


def test_the_bundle_holds_rows_and_log(stage: Stage) -> None:
    stage.run({"one": stage.section(1)})
    with tarfile.open(stage.folder / BUNDLE) as tar:
        assert tar.getnames() == ["gpu/rows.jsonl", "gpu/gpu.log"]


@pytest.mark.parametrize(
    ("row", "clean"),
    [
        (OK, True),
        ({**OK, "met": True}, True),
        ({**OK, "met": False}, False),
        ({**OK, "status": "refused"}, True),
        ({**OK, "status": "too_large"}, True),
        ({**OK, "status": "wrong"}, False),
        ({**OK, "status": "oom"}, False),
    ],
)
def test_what_counts_as_clean(tmp_path: Path, row: Row, clean: bool) -> None:
    journal = Journal(tmp_path, "commit")
    journal.add("one", OK)
    journal.add("one", row)
    assert journal.clean is clean


def test_numbers_that_are_none_are_kept_as_text(tmp_path: Path) -> None:
    Journal(tmp_path, "commit").add("one", {**OK, "error": float("inf"), "other": float("nan")})
    (row,) = log(tmp_path)
    assert (row["error"], row["other"]) == ("inf", "nan")


def test_a_row_reads_as_a_line() -> None:
    row = {"case": "mla 128 16x8192 ours", "status": "ok", "latency_us": 118.23456, "reason": None, "met": True}
    assert text("studies", row).split() == [
        "studies",
        "mla",
        "128",
        "16x8192",
        "ours",
        "ok",
        "latency_us=118.2",
        "met=True",
    ]
