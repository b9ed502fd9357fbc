"""What a page carries inside itself: numbers for its script, and pictures."""

import base64
import json
from pathlib import Path
from typing import Any

_IN_SCRIPT = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def script_json(value: Any) -> str:
    """Strict JSON, in which no text can close the script element that holds it. Raises ValueError for NaN."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).translate(_IN_SCRIPT)


def picture(folder: Path, stem: str) -> str:
    """A figure's SVG as a data URI, or its PNG where that is smaller. Inside an image no script runs, nothing loads."""
    kinds = (("svg+xml", folder / f"{stem}.svg"), ("png", folder / f"{stem}.png"))
    kind, path = min(kinds, key=lambda pair: pair[1].stat().st_size)
    return f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
