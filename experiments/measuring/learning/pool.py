"""Trainings side by side, each in a process of its own: one that dies takes no other with it.

A decoder this small gains nothing from a second thread, and so every process has one.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import connection, get_context
from typing import Any

import torch

from experiments.learned import Training
from experiments.measuring.denormals import flushed
from experiments.measuring.learning.job import Job, Said, ended
from experiments.measuring.learning.train import Diverged, Learned, train


@dataclass
class _Running:
    job: Job
    process: Any
    answer: connection.Connection
    started: datetime


def learn_all(jobs: Sequence[Job], said: Said, workers: int) -> Iterator[tuple[Job, Training]]:
    """Every job with its row, as they end; processes that still run when nobody asks for more are ended.

    One worker: in this process, with as many threads as torch has.
    """
    if workers == 1:
        for job in jobs:
            started = datetime.now(UTC)
            yield job, ended(job, said, _learn(job), started)
        return
    waiting, running = list(jobs), dict[Any, _Running]()
    context = get_context("forkserver")
    context.set_forkserver_preload(["experiments.measuring.learning.pool"])
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                one = _start(context, waiting.pop(0))
                running[one.answer] = one
            for answer in connection.wait(list(running)):
                yield _end(running.pop(answer), said)
    finally:
        for one in running.values():
            one.process.terminate()
        for one in running.values():
            one.process.join()


def _start(context: Any, job: Job) -> _Running:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(job, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Running(job, process, ours, datetime.now(UTC))


def _end(one: _Running, said: Said) -> tuple[Job, Training]:
    try:
        result = one.answer.recv()
    except EOFError:
        result = None
    one.process.join()
    if result is None:
        result = f"its process ended with exit code {one.process.exitcode} and no answer"
    return one.job, ended(one.job, said, result, one.started)


def _answer(job: Job, answer: connection.Connection) -> None:
    """In a process of its own: train and say so. Ctrl-C is for the parent, who ends us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    result = _learn(job)
    with suppress(BrokenPipeError):
        answer.send(result)


def _leave_with(parent: int) -> None:
    """End this process when its parent is gone, however that ended: nobody would hear the answer."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _learn(job: Job) -> Learned | str:
    try:
        with flushed():
            return train(job.lesson, job.matched, job.task, job.seed)
    except Diverged as error:
        return str(error)
