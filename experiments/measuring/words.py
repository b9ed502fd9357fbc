"""What a worker's process says on its standard error, and what of it a row can hold."""

import fcntl
import os
import tempfile
from multiprocessing.reduction import DupFd
from typing import IO, Any, Self

STDERR_BYTES = 2048  # go into a row
READ_BYTES = 4 * STDERR_BYTES  # are looked at: Python tells of a fatal error at length
TAIL = 400  # characters go into the reason
FATAL = "Fatal Python error: "  # then where it happened, innermost call first, and what else had been imported
IMPORTED = "Extension modules: "


class Words:
    """A file without a name that both sides hold: nothing of it is left behind, however either of them ends."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._quoted = 0  # bytes of it that some row has

    @classmethod
    def new(cls) -> Self:
        """Nothing has been said yet. Its place in the file is shared, so the writer appends and the reader has none."""
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # ``close`` closes it
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        return cls(file)

    def __reduce__(self) -> Any:
        return _received, (DupFd(self._file.fileno()),)

    def say(self) -> None:
        """From now on all output of this process goes here."""
        for descriptor in (1, 2):
            os.dup2(self._file.fileno(), descriptor)
        self._file.close()

    def last(self) -> str | None:
        """The last lines since this was asked before, or those of a fatal error, as text that a row can hold."""
        end = os.fstat(self._file.fileno()).st_size
        start = max(self._quoted, end - READ_BYTES)
        self._quoted = end
        text = os.pread(self._file.fileno(), end - start, start)
        kept = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(IMPORTED.encode()))
        return _cut(kept) or None

    def close(self) -> None:
        """Nobody will ask any more."""
        self._file.close()


def in_short(said: str | None) -> str:
    """The end of it in one line, or the beginning of a fatal error."""
    text = said or ""
    words = " ".join(text.split())
    return words[:TAIL] if text.startswith(FATAL) else words[-TAIL:]


def _received(descriptor: Any) -> Words:
    return Words(os.fdopen(descriptor.detach(), "r+b", buffering=0))


def _cut(text: bytes) -> str:
    """As much as a row holds, in whole lines where there are several."""
    fatal = text.rfind(FATAL.encode())
    if fatal >= 0:
        return text[fatal : fatal + STDERR_BYTES].decode(errors="replace").strip("\n")
    told = text[-STDERR_BYTES:].decode(errors="replace")
    if len(text) > STDERR_BYTES:
        told = told.partition("\n")[2] or told  # the first line has lost its beginning
    return told.strip("\n")
