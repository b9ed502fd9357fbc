"""The yaml files of a folder of ``conf``, as plain data."""

from pathlib import Path
from typing import Any

import yaml

from experiments.planning.profile import DeviceProfile


def yamls(folder: Path) -> dict[str, dict[str, Any]]:
    """What each file holds, by its name without ending, in that order."""
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}


def profiles(folder: Path) -> dict[str, DeviceProfile]:
    """The profiles of those devices that have one, by file."""
    return {stem: DeviceProfile.parse(raw["profile"]) for stem, raw in yamls(folder).items() if raw.get("profile")}
