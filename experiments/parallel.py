"""Decode by several processes: ``torchrun --standalone --nproc-per-node=4 -m experiments.parallel tp=2 cp=2``."""

import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NoReturn

from experiments.pairs import PAIRS_HELP, listed, number, parse_pairs
from experiments.plain import BAD_INPUT, INTERRUPTED, UNCLEAN
from experiments.record import CLEAN, Measurement
from experiments.terminal import say

DEFAULTS = {
    "attention": "[mha,gqa,mqa,mla]",
    "model": "llama3_8b",
    "storage": "contiguous",
    "backend": "numba_split_kv",
    "device": "auto",
    "tp": "1",
    "cp": "1",
    "block": "16",
    "batch": "1",
    "context": "8k",
    "dtype": "bf16",
    "kv_dtype": "",
    "rounds": "20",
    "seed": "0",
    "name": "parallel",
    "results": "results",
    "timeout_s": "600",
}
HELP = f"""Time decode steps that tp x cp processes run together; each holds its shard of the layer and of the cache.

torchrun --standalone --nproc-per-node=4 -m experiments.parallel tp=2 cp=2 context=[8k,32k] dtype=fp32

  attention={DEFAULTS["attention"]}  names of conf/attention; likewise model=, storage=, backend=, one of each
  tp=1 cp=1                      processes that share the heads, and that share the sequence; torchrun starts tp x cp
  block=16                       tokens that one rank caches before it is the next one's turn
  batch=1 context=8k             one or several of each; context counts the tokens that all ranks cache together
  dtype=bf16 kv_dtype=           of weights and activations, and of the cache (default: the same)
  rounds=20 seed=0 device=auto   cpu ranks talk by gloo, cuda ranks by nccl, one GPU each
  name=parallel results=results  rows go to <results>/runs/<name>/<series>/records.jsonl, written by the first rank
  timeout_s=600                  how long a rank waits for another

Every step is first held to the whole layer in float32 on a short sequence. Rows say tp, cp, bytes of the rank that
caches most, latency by the rank that ends last, and collective_us by the rank that waits least.
Exit code of each process: 0; 2 bad input; 3 some row is neither ok nor properly refused. torchrun makes 1 of any but 0.

{PAIRS_HELP}"""


def parallel(arguments: Sequence[str]) -> int:
    """Measure every attention at every point; 0, or 3 if a row is not clean.

    Raises ValueError or OSError, on every rank, for what the user can mend.
    """
    if {"--help", "-h"} & set(arguments):
        print(HELP)
        return 0
    values = DEFAULTS | parse_pairs(arguments, tuple(DEFAULTS))
    # torch is only needed from here on
    import torch.distributed as dist

    from experiments.measuring.device import find_device
    from experiments.runfolder import locked, run_folder
    from variants.parallel.ranks import start

    folder, device = run_folder(values["results"], values["name"]), find_device(values["device"])
    if device is None:
        raise ValueError(f"this machine has no {values['device']} device")
    rank = start(device.kind, number(values, "timeout_s"))
    try:
        with locked(folder) if rank == 0 else nullcontext():
            clean = [_told(folder, *found, rank) for found in _rows(values, device)]
    finally:
        dist.destroy_process_group()
    return 0 if all(clean) else UNCLEAN


def main() -> NoReturn:
    """Entry point. Every rank fails alike, so only the first one says why."""
    try:
        sys.exit(parallel(sys.argv[1:]))
    except (ValueError, OSError) as error:
        if os.environ.get("RANK", "0") == "0":
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _rows(values: Mapping[str, str], device: Any) -> Iterator[tuple[Measurement, Any]]:
    """Every row in turn, the same on all ranks, and its samples."""
    import torch.distributed as dist

    from experiments.measuring.laps import ClockedRanks
    from experiments.measuring.ranks import Shared, measure
    from experiments.measuring.row import unbuildable_row
    from experiments.named import job
    from variants.contract.ranks import Turns

    tp, cp = number(values, "tp"), number(values, "cp")
    if tp * cp != dist.get_world_size():
        raise ValueError(f"tp x cp must be the number of processes; got tp={tp}, cp={cp}, {dist.get_world_size()}")
    ranks = ClockedRanks.join(tp, cp, device.kind)
    turns = Turns(cp, number(values, "block"))
    started = ["torchrun", f"--nproc-per-node={tp * cp}", "-m", "experiments.parallel", *sys.argv[1:]]
    jobs = [job(values, attention, shlex.join(started)) for attention in listed("attention", values["attention"])]
    if all(one.whole is None for one in jobs):
        raise ValueError(jobs[0].reason)
    for one in jobs:
        if one.whole is None or one.series is None:
            row = unbuildable_row(one.labels, one.raw, one.reason)
            yield replace(row, status="error" if one.whole is None else "refused", cp=cp), None
            continue
        workload, whole = one.series.workload, one.whole.spec
        for batch, context in product(workload.batches, workload.contexts):
            yield measure(Shared(one.series, whole, device, ranks, turns, batch, context))


def _told(folder: Path, row: Measurement, us: Any, rank: int) -> bool:
    """Store and print a row, if this is the first rank; whether it is clean."""
    if rank == 0:
        from experiments.runfolder import store

        samples = (
            {} if us is None else dict(zip((row.key, f"{row.key}.collective"), us.numpy()[..., None], strict=True))
        )
        store(folder, (row,), samples)
        say(_line(row))
    return row.status in CLEAN


def _line(row: Measurement) -> str:
    point = f"{row.attention} batch {row.batch} context {row.context} tp {row.tp} cp {row.cp}"
    if row.latency_us_p50 is None or row.collective_us is None:
        return f"{point}: {row.status}: {row.reason}"
    share = row.collective_us / row.latency_us_p50
    return (
        f"{point}: {row.latency_us_p50:.0f} us, of which collectives {row.collective_us:.0f} us ({share:.0%}); "
        f"{row.cache_bytes} B of cache per rank"
    )


if __name__ == "__main__":
    main()
