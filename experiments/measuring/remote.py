"""A worker in a process of its own: what kills it, or never ends, is the rows of its series and nobody else's.

Workers are forked from a server that has imported torch and the plug-ins once and has run nothing (`forkserver`; where
there is none, `spawn`). While one is asked the run blocks on its pipe, and the others block on theirs.
"""

import contextlib
import ctypes
import faulthandler
import multiprocessing
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from experiments.measuring.device import Device
from experiments.measuring.messages import Begin, Failed, Kept, Ready, Reply, Request
from experiments.measuring.series import Series
from experiments.measuring.timing import make_timer
from experiments.measuring.words import Words, in_short
from experiments.measuring.worker import Worker
from experiments.record import BROKEN

PROCESS_BYTES = 640 * 2**20  # of host memory that a worker takes, noise to copy from included
START_S = 300  # for imports, on a machine that is doing something else
LINGER_S = 3  # between a process's last word and its end
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"


@dataclass(frozen=True)
class Setup:
    """All that a worker needs to begin."""

    series: Series
    device: Device
    threads: int
    words: Words  # where its standard error goes


def import_ahead(several: Iterable[Series]) -> None:
    """Have the server import what these series need before the first fork; without effect once it runs."""
    if _METHOD == "forkserver":
        plugins = {type(part).__module__ for s in several for part in (s.spec, s.policy, s.backend)}
        multiprocessing.get_context(_METHOD).set_forkserver_preload([__name__, *sorted(plugins)])


class Remote:
    """A hand on another process. Once that is lost, every answer is why; the point at hand says it in its own words."""

    def __init__(self, series: Series, device: Device, threads: int, timeout_s: float | None) -> None:
        self.said = Words.new()
        self.timeout_s = timeout_s
        self.lost: Failed | None = None
        self.kept_bytes = 0
        self.pipe, self.process = _started(Setup(series, device, threads, self.said))
        with contextlib.suppress(OSError):  # it has ended already: ``begun`` will find out
            self.pipe.send(Begin())

    def begun(self) -> None:
        """Wait until the process can be asked: nothing is timed while another one starts."""
        answer = self._hear(START_S)
        if isinstance(answer, Failed):
            self.lost = replace(answer, reason=f"while its worker started: {answer.reason}", tried=False)

    def ask(self, request: Request) -> Reply:
        """Send and wait."""
        if self.lost is not None:
            return self.lost
        try:
            self.pipe.send(request)
        except OSError:
            return self._lose(self._died())
        reply = self._hear(self.timeout_s)
        self.kept_bytes = reply.bytes if isinstance(reply, Kept) else self.kept_bytes
        return self._quoted(reply)

    def close(self) -> None:
        """Let it go, and kill it if it does not: what it holds, nobody will miss."""
        self.pipe.close()
        self._end()
        self.said.close()

    def _hear(self, timeout_s: float | None) -> Reply:
        told = wait([self.pipe, self.process.sentinel], timeout_s)
        if not told:
            self.process.kill()
            return self._lose(Failed("timeout", f"no answer within {timeout_s:g} s; killed", self.said.last()))
        if self.pipe in told:
            with contextlib.suppress(EOFError, OSError):
                reply: Reply = self.pipe.recv()
                return reply
        return self._lose(self._died())

    def _died(self) -> Failed:
        self._end()
        code = self.process.exitcode or 0
        how = f"exit status {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        said = self.said.last()
        words = in_short(said)
        return Failed("crash", f"the worker process ended: {how}" + (f": {words}" if words else ""), said)

    def _quoted(self, reply: Reply) -> Reply:
        """The reply, with what the worker has said since it was last heard where something went wrong in it."""
        if isinstance(reply, Failed) and reply.status in BROKEN and reply.stderr is None:
            return replace(reply, stderr=self.said.last())
        if isinstance(reply, Ready):
            wrong = {s: f for s, f in reply.scopes.items() if isinstance(f, Failed) and f.status in BROKEN}
            said = self.said.last() if wrong else None
            return replace(reply, scopes={**reply.scopes, **{s: replace(f, stderr=said) for s, f in wrong.items()}})
        return reply

    def _end(self) -> None:
        self.process.join(LINGER_S)
        self.process.kill()
        self.process.join()

    def _lose(self, why: Failed) -> Failed:
        """Answer ``why`` now, and from now on that it was lost before."""
        self.kept_bytes = 0
        reason = f"not tried, for at an earlier point: {why.reason}"
        self.lost = Failed(why.status, reason, tried=False)
        return why


def _started(setup: Setup) -> tuple[Connection, BaseProcess]:
    """A process that serves, and our end of its pipe; a server that somebody has killed is replaced once.

    Raises OSError if that ends too, or if there is no place for its socket.
    """
    for _ in range(2):
        ours, theirs = multiprocessing.get_context(_METHOD).Pipe()  # never one that an orphan of the last try may read
        try:
            return ours, _process(theirs, setup)
        except (EOFError, ConnectionError):
            ours.close()
        finally:
            theirs.close()
    raise OSError("no worker can be started: the server that forks them is killed again and again")


def _process(pipe: Connection, setup: Setup) -> BaseProcess:
    context = multiprocessing.get_context(_METHOD)
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context but the base class has it
        target=serve, args=(pipe, setup)
    )
    try:
        process.start()
    except OSError as error:
        if "AF_UNIX" not in str(error):
            raise
        raise OSError(
            f"no worker can be started: the folder for temporary files has too long a name for a socket; "
            f"set TMPDIR to a shorter one or isolation=none; got {tempfile.gettempdir()}"
        ) from None
    return process


def serve(pipe: Connection, setup: Setup) -> None:
    """What runs in the process: answers until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's to act on
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)  # the server ends with the run, however that ends
    setup.words.say()
    faulthandler.enable()
    device = setup.device
    timer = make_timer(setup.series.timer.kind, device.kind, device.synchronize)
    worker = Worker(setup.series, setup.threads, device, timer, traceback.print_exception)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            pipe.send(worker.ask(pipe.recv()))
