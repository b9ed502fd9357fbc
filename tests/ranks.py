"""A small world of processes under gloo, for tests of several ranks: started once, since each start imports torch."""

import multiprocessing
import os
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

WORLD = 4
Case = Callable[[], Any]


def told_by_all(cases: Callable[[], Mapping[str, Case]], folder: Path) -> dict[str, list[Any]]:
    """Run every case on all ranks and return what each rank said, by case; an exception is said as a text.

    ``cases`` is a function of a module: it is called on every rank.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([cases.__module__])  # one import for all
    queue: SimpleQueue[Any] = context.SimpleQueue()
    ranks = [context.Process(target=_rank, args=(cases, rank, str(folder / "meet"), queue)) for rank in range(WORLD)]
    for process in ranks:
        process.start()
    said = dict(queue.get() for _ in ranks)
    for process in ranks:
        process.join()
    return {case: [said[rank][case] for rank in range(WORLD)] for case in said[0]}


def _rank(cases: Callable[[], Mapping[str, Case]], rank: int, meet: str, queue: "SimpleQueue[Any]") -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=rank, world_size=WORLD)
    queue.put((rank, {name: _said(case) for name, case in cases().items()}))
    dist.destroy_process_group()


def _said(case: Case) -> Any:
    try:
        return case()
    except Exception:  # the test that asks for this case shall see it
        return traceback.format_exc()
