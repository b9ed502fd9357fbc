"""Find a plug-in by (folder, kind): ``variants.<folder>.<kind>``, and nothing outside this package."""

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

FOLDERS = ("attention", "storage", "backend")


def find(folder: str, kind: object) -> Any:
    """The object that ``variants/<folder>/<kind>`` exports as ``plugin``.

    Raises ValueError with the list of kinds if there is no such plug-in. A kind is a bare name, so a config can name a
    module of ours and nothing else: no dotted path, no import of foreign code.
    """
    if folder not in FOLDERS:
        raise ValueError(f"plug-in folder must be one of {', '.join(FOLDERS)}; got {folder!r}")
    known = kinds(folder)
    if not (isinstance(kind, str) and re.fullmatch(r"[a-z][a-z0-9_]*", kind) and kind in known):
        raise ValueError(f"{folder} kind must be one of {', '.join(known)}; got {kind!r}")
    return importlib.import_module(f"variants.{folder}.{kind}").plugin


def kinds(folder: str) -> list[str]:
    """Names of the modules in a folder that export ``plugin``, found by reading them; nothing is imported."""
    place = Path(__file__).parent.parent / folder
    return sorted(m.name for m in pkgutil.iter_modules([str(place)]) if _exports_plugin(place, m))


def _exports_plugin(place: Path, module: pkgutil.ModuleInfo) -> bool:
    """Whether the module's text binds ``plugin``; ``storage/cache.py``, say, is a part that storages are built of."""
    source = place / module.name / "__init__.py" if module.ispkg else place / f"{module.name}.py"
    return re.search(r"^plugin\b|\bas plugin$", source.read_text(), re.MULTILINE) is not None
