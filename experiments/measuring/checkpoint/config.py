"""A checkpoint's config as an object of transformers' own class, with nothing in it that could choose code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.measuring.checkpoint.families import FAMILIES
from experiments.measuring.checkpoint.hub import one_line, transformers

LARGEST = 16 * 2**20  # bytes
# Fields of older files that a class turns into its own; all others that are not its own are left out, for some of them
# make transformers import, fetch or patch code, or read other files than those that were checked.
OLDER = ("rope_theta", "rope_scaling", "partial_rotary_factor", "rotary_pct", "rotary_emb_base", "n_embed")
ATTENTION = "eager"  # theirs, against which ours is held


def read_config(folder: Path) -> Any:
    """The config of a folder; ValueError in one line for a file that is none, or of a kind that is not read."""
    path = folder / "config.json"
    if path.stat().st_size > LARGEST:
        raise ValueError(f"{path} must be below {LARGEST} B; it has {path.stat().st_size} B")
    try:
        raw = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ValueError(f"{path} is no JSON") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{path} must be a JSON object; got {type(raw).__name__}")
    return make_config(raw, str(path))


def make_config(raw: Mapping[str, Any], where: str) -> Any:
    """An object of the class that ``model_type`` names; ValueError if there is none here, or if it refuses a field."""
    kind = raw.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(f"{where}: model_type must be one of {', '.join(FAMILIES)}; got {kind!r}")
    if raw.get("quantization_config"):
        raise ValueError(f"{where}: quantization_config is set, and only GGUF files are dequantised")
    theirs = transformers()
    made = theirs.CONFIG_MAPPING[kind]
    own = set(made.__dataclass_fields__) - set(theirs.PreTrainedConfig.__dataclass_fields__)
    known = {*own, *made.attribute_map, *OLDER}
    try:
        config = made(**{name: value for name, value in raw.items() if name in known})
    except Exception as error:  # strict classes raise many kinds, all about a field
        raise ValueError(f"{where}: {one_line(error)}") from None
    config._attn_implementation = ATTENTION
    return config
