"""What of a spec goes into the keys of its rows."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

# metadata of a field that came after rows had been published: at its default it says nothing, and older keys hold
ADDED: Mapping[str, Any] = {"added": True}


def identity_of(spec: Any) -> dict[str, Any]:
    """All fields of a dataclass by name, nested ones as mappings; those ``ADDED`` only where they say something new."""
    silent = {f.name for f in fields(spec) if f.metadata.get("added") and getattr(spec, f.name) == f.default}
    return {name: value for name, value in asdict(spec).items() if name not in silent}
