"""What a run found when it looked at its first point and its ceilings a second time, at its end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.records import CHECKS


def unsteady(name: str, place: Path) -> list[str]:
    """One line where some of these checks do not hold: times far apart in the run are less sure than intervals say."""
    checks = [check for file in sorted(place.rglob(CHECKS)) for check in _read(file)]
    changed = [check for check in checks if check.get("holds") is False]
    if not changed:
        return []
    first = f"{changed[0].get('check')}: {changed[0].get('numbers')}"
    return [
        f"{name}: at its end {len(changed)} of {len(checks)} second looks found another machine than at its start "
        f"({first}); what lies between is less sure than the intervals say"
    ]


def _read(file: Path) -> Iterator[dict[str, Any]]:
    """The lines that can be read: a run that was killed leaves half a line."""
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            check = json.loads(line)
        except ValueError:
            continue
        if isinstance(check, dict):
            yield check
