"""The parallel door: rows of steps that several processes run together. Here mostly one; torchrun starts two once."""

import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from experiments.measuring.device import Device
from experiments.measuring.laps import ClockedRanks
from experiments.measuring.ranks import Shared
from experiments.parallel import main
from experiments.records import load
from tests.builders import ROOT
from tests.experiments.builders import Street, series
from tests.experiments.measuring.test_series import key
from variants.contract.ranks import Turns
from variants.parallel.context import ContextStep

SMALL = ("model=smollm2_135m", "attention=[gqa,mla]", "backend=eager", "dtype=fp32", "rounds=3", "context=[40,1]")


@pytest.fixture
def street(tmp_path, monkeypatch, capfd) -> Street:
    """The environment that torchrun gives to the only one of its processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**process, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    return Street(tmp_path, monkeypatch, capfd)


def rows(street):
    return load(street.folder / "results" / "runs" / "parallel").rows


def test_rows_say_what_was_measured(street):
    told = street.knock(main, *SMALL)
    assert (told.code, told.err) == (0, "")
    found = {(row.attention, row.context): row for row in rows(street)}
    assert set(found) == {("gqa", 40), ("gqa", 1), ("mla", 40), ("mla", 1)}
    row = found["gqa", 40]
    assert (row.status, row.scope, row.temperature, row.tp, row.cp) == ("ok", "step", "warm", 1, 1)
    assert row.cache_bytes == 40 * 2 * 3 * 64 * 4  # tokens, K and V, kv heads, width, bytes
    assert (row.rounds, row.samples, row.kernel) == (3, 3, "eager + gloo")
    assert row.collective_us is not None
    assert row.latency_us_p50 is not None
    assert 0 <= row.collective_us < row.latency_us_p50
    assert row.audits is not None
    assert row.audits.startswith("oracle=ok (relative error ")
    assert "allocated=ok" in row.audits
    assert f"gqa batch 1 context 40 tp 1 cp 1: {row.latency_us_p50:.0f} us" in told.out


def test_samples_of_steps_and_of_collectives_lie_beside_the_rows(street):
    street.knock(main, *SMALL)
    row = rows(street)[0]
    folder = street.folder / "results" / "runs" / "parallel" / row.series / "samples"
    us = np.load(folder / f"{row.key}.npy", allow_pickle=False)
    assert us.shape == (3, 1)
    assert np.median(us) == row.latency_us_p50
    assert np.median(np.load(folder / f"{row.key}.collective.npy", allow_pickle=False)) == row.collective_us


def test_measured_together_or_alone_are_two_points():
    """A rank of two that is measured alone does without collectives."""
    split = Turns(1)
    alone = series("gqa", tp=2)
    device = Device("cpu", "pretended", 2, 2**16, 2**31, "host", "torch 0", "commit")
    ranks = ClockedRanks(tp=2)
    together = Shared(alone, alone.spec, device, ranks, split, 1, 16).columns()
    assert together["key"] != key(alone)
    more = Shared(alone, alone.spec, device, replace(ranks, cp=2), Turns(2), 1, 16).columns()
    assert more["key"] != together["key"]
    assert more["series"] != together["series"]
    assert (more["context"], more["cache_bytes"]) == (16, together["cache_bytes"])  # one block: all on the first


def test_an_output_that_is_wrong_is_not_timed(street):
    with street.monkeypatch.context() as patch:
        patch.setattr(ContextStep, "owns", False)  # the new token is cached by nobody
        told = street.knock(main, *SMALL)
    assert told.code == 3
    assert {row.status for row in rows(street)} == {"wrong"}
    assert all("oracle=FAILED" in str(row.reason) for row in rows(street))


def test_what_cannot_be_is_a_row_with_its_reason(street):
    told = street.knock(main, *SMALL[:1], "attention=[gqa,gla]", "backend=sdpa", "storage=paged", "context=8")
    assert told.code == 3
    by = {row.attention: row for row in rows(street)}
    assert by["gqa"].status == "refused"
    assert "storage paged: it needs one run of slots per sequence" in str(by["gqa"].reason)
    assert (by["gla"].status, by["gla"].latency_us_p50) == ("error", None)
    assert "num_latent_heads must be at least 1 and divide num_q_heads" in str(by["gla"].reason)


def test_a_point_beyond_memory_is_said_before_it_is_allocated(street):
    told = street.knock(main, *SMALL[:-1], "context=100M")
    assert told.code == 0
    assert {row.status for row in rows(street)} == {"too_large"}
    assert "for 1 ranks; free: " in told.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tp=2",), "tp x cp must be the number of processes; got tp=2, cp=1, 1"),
        (("tp=0",), "tp must be a whole number >= 1; got '0'"),
        (("rounds=few",), "rounds must be a whole number >= 1; got 'few'"),
        (("seed=-1",), "seed must be a whole number >= 0; got '-1'"),
        (("block=0",), "block must be a whole number >= 1"),
        (("attention=../mha",), "attention must be one of gla, gqa"),
        (("backend=os",), "backend must be one of eager"),
        (("attention=gla", "model=smollm2_135m"), "num_latent_heads must be at least 1"),
        (("name=../up",), "name must be letters"),
        (("device=tpu",), "this machine has no tpu device"),
        (("hydra.callbacks=x",), "key must be one of attention, model"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(street, arguments, said):
    assert said in street.knock(main, *arguments).refusal
    assert not [name for name in street.files() if "records" in name]


def test_without_torchrun_it_says_so(street):
    street.monkeypatch.delenv("RANK")
    assert "as torchrun --nproc-per-node=N does" in street.knock(main).refusal


def test_help_is_help(street):
    told = street.knock(main, "--help")
    assert told.code == 0
    assert "torchrun --standalone --nproc-per-node=4 -m experiments.parallel" in told.out


@pytest.mark.slow
def test_torchrun_starts_processes_that_share_a_sequence_or_heads(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    small = ["backend=eager", "dtype=fp32", "rounds=3", "context=40", "attention=[mha,mla]"]
    for split in (["model=smollm2_135m", "cp=2"], ["model=deepseek_v2_lite", "tp=2"]):
        command = [*torchrun, "-m", "experiments.parallel", *small, *split]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = {(row.attention, row.tp, row.cp): row for row in load(tmp_path / "results").rows}
    assert {row.status for row in found.values()} == {"ok"}
    assert set(found) == {("mha", 1, 2), ("mla", 1, 2), ("mha", 2, 1), ("mla", 2, 1)}
    assert all((row.collective_us or 0) > 0 for row in found.values())
    assert found["mha", 1, 2].cache_bytes == 24 * 2 * 9 * 64 * 4  # of 40 tokens in blocks of 16, the first has 16 + 8
    assert found["mla", 2, 1].tp_mode == "replicated"
    assert found["mla", 2, 1].cache_bytes == 40 * (512 + 64) * 4
