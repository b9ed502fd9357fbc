"""How much cache does a model need: ``python -m experiments.cache config=path/config.json tokens='[8k,128k]' tp=8``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from experiments.pairs import PAIRS_HELP, listed, parse_pairs
from experiments.plain import UNCLEAN, leave
from experiments.planning import fits
from experiments.planning.amounts import parse_bytes, parse_mix
from experiments.planning.capacity import PARAMETERS, preset_weight_bytes
from experiments.planning.fits import Budget, Fit, Load
from experiments.planning.formats import parse_format
from experiments.planning.hf.many import Refused, read_many
from experiments.planning.hf.presets import preset
from experiments.planning.hf.read import FORMS, read_config
from experiments.planning.model_cache import ModelCache
from experiments.planning.paging import PAGE
from experiments.planning.table import ERROR, Asked, Row, check_out, rows, text, unreadable, write
from experiments.terminal import aligned, say
from variants.contract.checks import check_count
from variants.contract.tokens import parse_tokens

HELP = (
    """How much cache a model needs, in bytes, from its config.json alone; what fits on given devices; figures of both.

python -m experiments.cache config=path/config.json tokens='[8k,128k]' tp='[1,2,4,8]' kv_dtype=fp8
python -m experiments.cache config=llama3_70b tokens=8k memory=80GB devices=8 reserve=5GB weights=140GB plots=folder

  config=FILE       a Hugging Face config.json, a folder that holds one, or a preset of conf/model (llama3_70b)
  models=FOLDER     every *.json in a folder instead; a file that cannot be read is a row that says why
  tokens=[8k,128k]  cached tokens (default 8k)
  tp=[1,2,4,8]      devices that share the heads (default 1, or all devices= there are)
  kv_dtype=bf16     bf16, fp16, fp32, fp8, fp8_ds_mla, int8, int4, int4_g<columns per scale> (default bf16)
  form=latent       how an MLA model caches: latent or expanded (per head)
  page=16           entries per page, for the answer as an engine pages it
  out=FILE          .csv or .json; all columns, with where each number came from

What fits, with the model's own attention and with others in its place (config= only):

  weights=140GB     bytes of the weights (default: a preset's own in bf16); one per config. Alone it tells the batch
                    from which on the cache exceeds them
  memory=80GB       of one device; GB is 10^9 bytes, GiB 2^30
  devices=8         how many there are (default 1); every tp of them hold one copy of the weights
  reserve=5GB       of each device, for activations and the runtime (default 0)
  mix=[2k:3,32k:1]  besides tokens=: sequences of several lengths, so many of each
                    out=FILE.csv also writes FILE-capacity.csv

  plots=FOLDER      figures as PNG and SVG: cache over context, bytes per device over tp, and sequences that fit if
                    memory= is given; of several configs each is a curve, one is shown beside other attention

"""
    + PAIRS_HELP
)
FITTING = ("weights", "memory", "devices", "reserve", "mix")
KEYS = ("config", "models", "tokens", "tp", "kv_dtype", "form", "page", "out", *FITTING, "plots")


def cache(arguments: Sequence[str]) -> int:
    """Print the tables, write and draw what was asked for; 0, or 3 if a file of a folder could not be read.

    Raises ValueError or OSError for what the user can mend.
    """
    if {"--help", "-h"} & set(arguments):
        print(HELP)
        return 0
    values = parse_pairs(arguments, KEYS)
    asked, form = _asked(values), values.get("form", "latent")
    out = Path(values["out"]) if "out" in values else None
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
    if out is not None:
        check_out(out)
    models = _models(values, form)
    budgets = _budgets(values, models)
    mixes = [parse_mix(listed("mix", values["mix"]))] if "mix" in values else []
    load = Load([*({tokens: 1} for tokens in asked.tokens), *mixes], asked.tps, asked.formats)
    found = [row for label, model in models.items() for row in _rows(label, model, asked, "config" in values)]
    fitted = [(model, budgets[label]) for label, model in models.items() if isinstance(model, ModelCache) and budgets]
    fitting = [fit for model, budget in fitted for fit in fits.fits(model, load, budget)]
    say(text(found))
    if fitting:
        _say_fits(fitting, [model for model, _ in fitted])
    for written in _write(out, found, fitting) + _draw(values, models, asked, budgets):
        say(f"written: {written}")
    return UNCLEAN if any(row.status == ERROR for row in found) else 0


def _asked(values: Mapping[str, str]) -> Asked:
    shared = "tp" if "tp" in values else "devices"
    tps = [parse_tokens(tp, shared) for tp in listed(shared, values.get(shared, "1"))]
    page = parse_tokens(values.get("page", str(PAGE)), "page")
    check_count("page", page)
    return Asked(
        tokens=[parse_tokens(tokens) for tokens in listed("tokens", values.get("tokens", "8k"))],
        tps=tps,
        formats=[parse_format(name) for name in listed("kv_dtype", values.get("kv_dtype", "bf16"))],
        page=page,
    )


def _models(values: Mapping[str, str], form: str) -> dict[str, ModelCache | Refused]:
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
        return read_config(preset(config), config, form)
    (model,) = read_many([path], form)
    if isinstance(model, Refused):
        raise ValueError(f"{config}: {model.reason}")
    return model


def _rows(label: str, model: ModelCache | Refused, asked: Asked, refuse_formats: bool) -> list[Row]:
    if isinstance(model, Refused):
        return [unreadable(label, model.reason)]
    return rows(model, asked, refuse_formats)


def _budgets(values: Mapping[str, str], models: Mapping[str, object]) -> dict[str, Budget]:
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
        count=parse_tokens(values.get("devices", "1"), "devices"),
        reserve=parse_bytes(values.get("reserve", "0"), "reserve"),
    )


def _say_fits(fitting: Sequence[Fit], models: Sequence[ModelCache]) -> None:
    header, cells, reasons = fits.shown(fitting)
    reasons += [f"{model.name}: {why}" for model in models if (why := fits.variants(model)[1])]
    said = "\nWhat fits, with the model as it is and with other attention in its place:"
    say("\n".join([said, aligned(header, cells), *reasons]))


def _write(out: Path | None, found: Sequence[Row], fitting: Sequence[Fit]) -> list[Path]:
    if out is None:
        return []
    write(found, out)
    if not fitting:
        return [out]
    beside = out.with_name(f"{out.stem}-capacity{out.suffix}")
    write(fitting, beside, fits.COLUMNS)
    return [out, beside]


def _draw(
    values: Mapping[str, str], models: Mapping[str, ModelCache | Refused], asked: Asked, budgets: Mapping[str, Budget]
) -> list[Path]:
    readable = {label: model for label, model in models.items() if isinstance(model, ModelCache)}
    if "plots" not in values or not readable:
        return []
    from experiments.sized import Shown, draw_sizes  # matplotlib: a plain table is not to wait for it

    shown = Shown(readable, asked.formats[0], asked.tokens, asked.tps, budgets)
    return draw_sizes(shown, Path(values["plots"]))


def main() -> NoReturn:
    """Entry point."""
    leave(cache)


if __name__ == "__main__":
    main()
