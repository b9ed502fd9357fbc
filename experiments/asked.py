"""What the ``key=value`` pairs of the cache door ask for: points, models, and budgets."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from experiments.pairs import listed
from experiments.planning.amounts import parse_count, parse_mix
from experiments.planning.capacity import PARAMETERS, preset_weight_bytes
from experiments.planning.fits import Budget, Load
from experiments.planning.formats import parse_format
from experiments.planning.hf.many import Refused, read_many
from experiments.planning.hf.presets import preset
from experiments.planning.hf.read import FORMS, read_config
from experiments.planning.model_cache import ModelCache
from experiments.planning.paging import PAGE
from experiments.planning.table import Asked
from variants.contract.amounts import parse_bytes

FITTING = ("weights", "memory", "devices", "reserve", "mix")


def points(values: Mapping[str, str]) -> Asked:
    """Lengths, tp, cache dtypes and page; ValueError names the key of what is none."""
    shared = "tp" if "tp" in values else "devices"
    return Asked(
        tokens=[parse_count(tokens, "tokens") for tokens in listed("tokens", values.get("tokens", "8k"))],
        tps=[parse_count(tp, shared) for tp in listed(shared, values.get(shared, "1"))],
        formats=[parse_format(name) for name in listed("kv_dtype", values.get("kv_dtype", "bf16"))],
        page=parse_count(values.get("page", str(PAGE)), "page"),
    )


def load_of(values: Mapping[str, str], asked: Asked) -> Load:
    """The points once more as what has to fit: each length alone, and ``mix=`` if it is given."""
    mixes = [parse_mix(listed("mix", values["mix"]))] if "mix" in values else []
    return Load([*({tokens: 1} for tokens in asked.tokens), *mixes], asked.tps, asked.formats)


def models_of(values: Mapping[str, str]) -> dict[str, ModelCache | Refused]:
    """The models by the name that a row has for them; a bad file of a folder is a reason, any other a ValueError."""
    form = values.get("form", FORMS[0])
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
    if ("config" in values) == ("models" in values):
        raise ValueError("give config=FILE or models=FOLDER, and not both (see --help)")
    if "config" in values:
        return {config: _single(config, form) for config in _configs(values)}
    folder = Path(values["models"])
    paths = sorted((*folder.glob("*.json"), *folder.glob("*/config.json")))
    if not paths:
        raise ValueError(f"models must be a folder with *.json or */config.json; got {values['models']!r}")
    labels = [str(path.relative_to(folder)) for path in paths]
    found = zip(labels, read_many(paths, form), strict=True)
    return {label: m if isinstance(m, Refused) else replace(m, name=label) for label, m in found}


def _configs(values: Mapping[str, str]) -> list[str]:
    whole = values["config"]  # a path may have a comma in it
    return [whole] if Path(whole).exists() else listed("config", whole)


def _single(config: str, form: str) -> ModelCache:
    """One model, from a file, a folder that holds ``config.json``, or a preset."""
    path = Path(config)
    if path.is_dir():
        path = path / "config.json"
        if not path.exists():
            raise ValueError(
                f"config must be a folder with a config.json; got {config!r} (models= reads several files)"
            )
    if not path.exists() and (path.suffix or path.parent != Path()):
        raise ValueError(f"config must be a file or a preset; there is no {path.absolute()}")
    if not path.exists():
        return read_config(preset(config), config, form)
    (model,) = read_many([path], form)
    if isinstance(model, Refused):
        raise ValueError(f"{config}: {model.reason}")
    return model


def budgets_of(values: Mapping[str, str], models: Mapping[str, object]) -> dict[str, Budget]:
    """What each config's caches must share; none if nothing was said of memory or weights."""
    given = [key for key in FITTING if key in values]
    if given and "models" in values:
        raise ValueError(f"{given[0]} is for config=, since every model has weights of its own; got models=")
    if given and not {"weights", "memory"} & set(given):
        raise ValueError(f"{given[0]} needs memory= or weights= beside it")
    if not given:
        return {}
    weights = listed("weights", values["weights"]) if "weights" in values else [None] * len(models)
    if len(weights) != len(models):
        raise ValueError(f"weights must be one for each config; got {len(weights)} for {len(models)}")
    return {label: _budget(values, label, weight) for label, weight in zip(models, weights, strict=True)}


def _budget(values: Mapping[str, str], label: str, weights: str | None) -> Budget:
    if weights is None and label not in PARAMETERS:
        raise ValueError(f"weights must be given, since {label!r} is no preset: their bytes, e.g. weights=140GB")
    return Budget(
        weights=preset_weight_bytes(label) if weights is None else parse_bytes(weights, "weights"),
        memory=parse_bytes(values["memory"], "memory") if "memory" in values else None,
        count=parse_count(values.get("devices", "1"), "devices"),
        reserve=parse_bytes(values.get("reserve", "0"), "reserve"),
    )
