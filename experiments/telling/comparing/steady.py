"""What a run found when it looked at its first point and its ceilings a second time, at its end."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.records import CHECKS
from experiments.telling.newest import seconds


def unsteady(name: str, rows: Iterable[tuple[Path, str | None]]) -> list[str]:
    """One line where some of these checks do not hold: times far apart in the run are less sure than intervals say.

    ``rows``: of each row that counts, the file it lies in and when it was started. Checks are the run's, whose folder
    holds those of its series.
    """
    starts: dict[Path, list[float]] = defaultdict(list)
    for file, started_at in rows:
        for folder in (file.parent, file.parent.parent):
            starts[folder / CHECKS].append(seconds(started_at))
    checks = [
        check for file in sorted(starts) if file.is_file() for check in _counting(list(_read(file)), starts[file])
    ]
    changed = [check for check in checks if check.get("holds") is False]
    if not changed:
        return []
    first = f"{changed[0].get('check')}: {changed[0].get('numbers')}"
    return [
        f"{name}: at its end {len(changed)} of {len(checks)} second looks found another machine than at its start "
        f"({first}); what lies between is less sure than the intervals say"
    ]


def _counting(checks: Sequence[dict[str, Any]], starts: Sequence[float]) -> Iterator[dict[str, Any]]:
    """The checks of those passes over a run that one of its rows was measured in.

    A pass began at a check's ``since`` and ends where the next one begins; checks that do not say so count always.
    """
    began = [seconds(check.get("since")) for check in checks]
    for check, since in zip(checks, began, strict=True):
        until = min((other for other in began if other > since), default=float("inf"))
        if since == float("-inf") or any(since <= start < until for start in starts):
            yield check


def _read(file: Path) -> Iterator[dict[str, Any]]:
    """The lines that can be read: a run that was killed leaves half a line."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            check = json.loads(line)
        except ValueError:
            continue
        if isinstance(check, dict):
            yield check
