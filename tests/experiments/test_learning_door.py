"""``study=train_small`` as a user types it, with decoders that take a moment."""

from datetime import UTC, datetime
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments.learned import Training, read
from experiments.measuring.learning import pool
from experiments.measuring.learning import train as training
from experiments.run import main
from tests.experiments.builders import Street, shell

TINY = (
    "study=train_small",
    "learning.workers=1",
    "learning.evaluations=1",
    "learning.attention=[mha,mqa]",
    "learning.seeds=[0,1]",
    "learning.model.hidden_size=16",
    "learning.model.num_hidden_layers=1",
    "learning.model.mlp_width=64",
    "learning.recall.steps=2",
    "learning.recall.batch=2",
    "learning.recall.held_out=4",
    "learning.text.steps=2",
    "learning.text.batch=2",
    "learning.text.held_out=4",
)
RUN = Path("results", "runs", "train_small")


def trainings(folder: Path) -> list[Training]:
    return list(read(folder)[0].values())


def test_rows_and_a_page_are_there_and_the_same_command_does_nothing_more(street: Street) -> None:
    first = street.knock(main, *TINY)
    assert first.code == 0, first
    rows = trainings(street.folder / RUN)
    assert sorted((row.task, row.attention, row.seed) for row in rows) == [
        (task, name, seed) for task in ("recall", "text") for name in ("mha", "mqa") for seed in (0, 1)
    ]
    assert len({row.data for row in rows}) == 4  # one per task and seed, whatever the variant
    assert {row.attention: row.cache_bytes for row in rows} == {"mha": 2 * 16 * 4, "mqa": 2 * 4 * 4}
    assert (street.folder / "results/reports/train_small/report.md").is_file()
    assert "No ranking: recall is too hard" in first.out
    again = street.knock(main, *TINY)
    assert again.code == 0
    assert "trainings: 8 are there, 0 to run" in again.err
    assert trainings(street.folder / RUN) == rows


def test_what_had_ended_stays_when_a_run_is_broken_off_and_is_not_trained_again(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[str, str, int]] = []
    train = training.train

    def broken_off(lesson, matched, task, seed):
        if len(trained) == 3:
            raise KeyboardInterrupt
        trained.append((task, str(matched.mlp_width), seed))
        return train(lesson, matched, task, seed)

    monkeypatch.setattr(pool, "train", broken_off)
    answer = street.knock(main, *TINY)
    assert answer.code == 130
    assert len(trainings(street.folder / RUN)) == 3
    monkeypatch.setattr(pool, "train", train)
    assert "trainings: 3 are there, 5 to run" in street.knock(main, *TINY).err
    assert len(trainings(street.folder / RUN)) == 8


def test_a_training_that_diverges_is_a_row_with_a_reason_and_is_tried_again_when_asked(street: Street) -> None:
    wild = (*TINY, "learning.tasks=[text]", "learning.text.learning_rate=1e30", "learning.attention=[mha]")
    assert street.knock(main, *wild).code == 3
    rows = trainings(street.folder / RUN)
    assert {row.status for row in rows} == {"error"}
    assert "not finite" in str(rows[0].reason)
    assert "2 are there, 0 to run" in street.knock(main, *wild).err
    assert "0 are there, 2 to run" in street.knock(main, *wild, "resume=failed").err


def test_a_process_that_is_lost_takes_no_other_training_with_it(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_start", _dying)
    answer = street.knock(main, *TINY, "learning.workers=2", "learning.seeds=[0]")
    assert answer.code == 3
    rows = trainings(street.folder / RUN)
    assert [row.reason for row in rows] == ["its process ended with exit code 7 and no answer"] * 4


def _dying(context, job):
    ours, theirs = Pipe(duplex=False)
    theirs.close()
    gone = SimpleNamespace(join=lambda: None, exitcode=7)
    return pool._Running(job, gone, ours, datetime.now(UTC))


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("attention=mla", "study=train_small takes options below learning. and name, results, resume; got attention"),
        ("timeout_s=3", "got timeout_s"),
        ("learning.attention=[mqa]", "must hold the baseline mha; got mqa"),
        ("learning.attention=[mha,nsa]", "must be of gla, gqa, gta, mha, mla, mqa; got 'nsa'"),
        ("learning.attention=[mha,{mla:{kv_rank:3}}]", "mla (kv_rank 3): attention: "),
        ("learning.attention=mha", "must be a list of names"),
        ("learning.attention=[mha,mha]", "must name each variant once; got mha twice"),
        ("learning.seeds=[]", "learning.seeds must name at least one"),
        ("learning.seeds=[-1]", "learning.seeds must be whole numbers"),
        ("learning=null", "asks=learning needs options below learning, which its study brings; got none"),
        ("learning.tasks=[{a:1}]", "learning.tasks must be of recall, text; got {'a': 1}"),
        ("learning.recall=5", "learning.recall must be a mapping; got 5"),
        ("learning.tasks=[chess]", "learning.tasks must be of recall, text; got chess"),
        ("learning.device=tpu", "learning.device must be one of cpu, cuda; got 'tpu'"),
        ("learning.workers=0", "learning.workers must be a whole number >= 1"),
        ("learning.warmup=2", "learning.warmup must be a number from 0 to below 1"),
        ("learning.recall.steps=0", "learning.recall.steps must be a whole number >= 1; got 0"),
        ("learning.recall.pairs=9", "learning.recall.context must be even and >= 4 recall.pairs"),
        ("learning.text.learning_rate=-1", "learning.text.learning_rate must be a number > 0"),
        ("learning.model.num_attention_heads=3", "learning.model.num_attention_heads must divide model.hidden_size"),
        ("+learning.colour=1", "learning has no field 'colour'"),
        ("learning.model.mlp_width=1 learning.attention=[mha,mla]", "parameters must match within 1% by the MLP width"),
        ("resume=never", "resume must be one of"),
        ("name=../up", "name must be letters"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(street: Street, argument: str, said: str) -> None:
    typed = argument.split(" ")
    named = {one.split("=")[0] for one in typed}
    others = [a for a in TINY if not any(a.startswith((f"{name}=", f"{name}.")) for name in named)]
    answer = street.knock(main, *others, *typed)
    assert answer.code == 2, answer
    assert said in answer.err
    assert len(answer.err.splitlines()) == 1
    assert street.files() == []


def test_a_sweep_is_refused(street: Street) -> None:
    answer = street.knock(main, *TINY, "name=a,b", "-m")
    assert answer.code == 2
    assert "study=train_small is one run: give lists below learning." in answer.err


def test_nothing_may_be_there_where_resume_is_none(street: Street) -> None:
    assert street.knock(main, *TINY).code == 0
    answer = street.knock(main, *TINY, "resume=none")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert "already holds 8 of these trainings" in answer.err


@pytest.mark.slow
def test_processes_side_by_side_learn_what_one_learns(street: Street, tmp_path: Path) -> None:
    few = [argument for argument in TINY if "workers" not in argument and "seeds" not in argument]
    for name, workers in (("one", 1), ("two", 2)):
        words = ("-m", "experiments.run", *few, f"name={name}", f"learning.workers={workers}", "learning.seeds=[3]")
        assert shell(*words, cwd=tmp_path, OMP_NUM_THREADS="1").code == 0
    one, two = ({row.key: row.curve for row in trainings(tmp_path / "results/runs" / name)} for name in ("one", "two"))
    assert one == two
    assert len(one) == 4
