"""transformers as a library that reads files of this machine: offline, and silent where it would draw bars."""

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any


def transformers() -> Any:
    """The package, told before its first import that there is no network; ValueError if it is not installed."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import transformers
    except ImportError:
        raise ValueError("a checkpoint needs transformers: pip install 'kvariants[hf]'") from None
    return transformers


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """No progress bars and no log lines of theirs; errors still come through."""
    logging = transformers().logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(before)


def one_line(error: BaseException) -> str:
    """The first line of a message of theirs that says something."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)  # else it stands in quotes
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return next((line for line in lines if line), type(error).__name__)
