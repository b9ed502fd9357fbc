"""What a door without Hydra does: plain arguments, errors in one line, an exit code."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

BAD_INPUT, UNCLEAN, INTERRUPTED = 2, 3, 130


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        """Raise ValueError."""
        raise ValueError(f"{message} (see --help)")


def leave(door: Callable[[Sequence[str]], int]) -> NoReturn:
    """Call a door with the command line and exit with its code; 2 for what the user can mend, 130 if interrupted."""
    try:
        sys.exit(door(sys.argv[1:]))
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
