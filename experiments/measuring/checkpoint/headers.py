"""Whether the safetensors files of a folder are whole, told from their headers; no tensor is read.

Format: 8 bytes with the header's length, a JSON header {name: {dtype, shape, data_offsets}}, then the data.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

INDEX = "model.safetensors.index.json"
ONE = "model.safetensors"
LARGEST_HEADER = 100 * 2**20  # bytes, the format's own limit


def check_folder(folder: Path) -> None:
    """Raise ValueError naming the file that is missing, cut short, damaged or without a tensor that the index names."""
    if not (folder / INDEX).exists():
        if not (folder / ONE).exists():
            raise ValueError(f"{folder} must hold {ONE} or {INDEX}; it has neither")
        tensor_names(folder / ONE)
        return
    held: dict[str, set[str]] = {}
    for tensor, name in _index(folder / INDEX).items():
        if name not in held:
            held[name] = tensor_names(_shard(folder, name))
        if tensor not in held[name]:
            raise ValueError(f"{folder / name} has no tensor {tensor!r}, which {INDEX} says it has")


def tensor_names(path: Path) -> set[str]:
    """Names of a file's tensors; ValueError if it is not a whole safetensors file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, LARGEST_HEADER):
            raise ValueError(f"{path} is cut short or no safetensors file: {size} B, header of {length} B")
        header = _object(file.read(length), f"the header of {path}")
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    needed = 8 + length + max((_end(path, name, entry) for name, entry in tensors.items()), default=0)
    if needed != size:
        what = "is cut short" if size < needed else "has bytes that are in no tensor"
        raise ValueError(f"{path} {what}: its header needs {needed} B; the file has {size} B")
    return set(tensors)


def _index(path: Path) -> Mapping[str, str]:
    weight_map = _object(path.read_bytes(), str(path)).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        raise ValueError(f"{path} must have weight_map, from tensors to file names")
    return weight_map


def _shard(folder: Path, name: str) -> Path:
    if Path(name).name != name or not name.endswith(".safetensors"):
        raise ValueError(f"{INDEX} must name .safetensors files of its own folder; got {name!r}")
    if not (folder / name).is_file():
        raise ValueError(f"{folder} has no {name}, which {INDEX} names")
    return folder / name


def _end(path: Path, name: str, entry: Any) -> int:
    """Byte after the tensor's last, counted from the end of the header."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)):
        raise ValueError(f"{path} is damaged: tensor {name!r} has no place in the file")
    return int(offsets[1])


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):  # a text that is not UTF-8 is a ValueError too
        raise ValueError(f"{what} is no JSON: the file is damaged") from None
    if not isinstance(raw, dict):
        raise ValueError(f"{what} must be a JSON object; got {type(raw).__name__}")
    return raw
