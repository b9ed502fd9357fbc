"""Writing a report folder all or nothing, and never over anything that is not a report."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PAGE = "report.md"
HTML = "report.html"
FIGURES = "figures"


@contextmanager
def report_folder(target: Path) -> Iterator[Path]:
    """Yield an empty sibling folder; it takes ``target``'s place when the block ends well, and vanishes when it fails.

    Raises ValueError if ``target`` exists and holds anything a report does not write.
    """
    target = target.resolve()
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    shutil.rmtree(fresh, ignore_errors=True)  # left by a killed process that had this number
    fresh.mkdir()
    try:
        (fresh / FIGURES).mkdir()
        yield fresh
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise ValueError(f"out must be a folder; got the file {target}")
    foreign = [p.name for p in target.iterdir() if p.name not in (PAGE, HTML, FIGURES)]
    figures = target / FIGURES
    if figures.is_dir():
        foreign += [p.name for p in figures.iterdir() if p.suffix not in (".png", ".svg")]
    if foreign:
        raise ValueError(f"out must be a new folder or an earlier report; {target} also holds {min(foreign)}")
