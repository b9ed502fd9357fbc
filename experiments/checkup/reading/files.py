"""Small files of /proc and /sys: their text, or None where there is no such thing."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def text(path: Path) -> str | None:
    """The stripped content; None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """A whole number that is all the file holds."""
    found = text(path)
    return int(found) if found and found.lstrip("-").isdigit() else None


def chosen(path: Path) -> str | None:
    """The word in brackets: ``always [madvise] never`` -> ``madvise``."""
    words = (text(path) or "").split()
    return next((word.strip("[]") for word in words if word.startswith("[")), None)


def cgroup_folders(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Folders of this process's control group and all above it, innermost first; each may hold a limit.

    ``controller`` is the hierarchy's name in version 1 (``cpu``, ``memory``); version 2 has one for all.
    """
    for line in (text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        here = top / path.lstrip("/")
        yield from (folder for folder in (here, *here.parents) if folder == top or top in folder.parents)
