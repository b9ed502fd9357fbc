"""A model preset of ``conf/model`` as a config: the same field names, so the same reader."""

from pathlib import Path
from typing import Any

CONF = Path(__file__).parents[2] / "conf" / "model"


def names() -> list[str]:
    """The presets there are."""
    return sorted(path.stem for path in CONF.glob("*.yaml"))


def preset(name: str) -> dict[str, Any]:
    """The preset called ``name`` as the data of a config.json; ValueError lists the presets if there is none."""
    if name not in names():
        raise ValueError(f"config must be a file or a preset ({', '.join(names())}); got {name!r}")
    import yaml  # only needed here, and a file of JSON is not to wait for it

    raw: dict[str, Any] = yaml.safe_load((CONF / f"{name}.yaml").read_text(encoding="utf-8"))
    return {**raw, "model_type": "deepseek_v3" if raw.get("kv_lora_rank") else "llama"}
