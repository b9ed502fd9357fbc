"""How much cache does a model need: ``python -m experiments.cache config=path/config.json tokens='[8k,128k]' tp=8``."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from experiments.asked import FITTING, budgets_of, load_of, models_of, points
from experiments.pairs import PAIRS_HELP, parse_pairs
from experiments.plain import UNCLEAN, leave
from experiments.planning import fits, table
from experiments.planning.fits import Budget, Fit
from experiments.planning.hf.many import Refused
from experiments.planning.model_cache import ModelCache
from experiments.planning.output import check_out, write
from experiments.planning.table import ERROR, Asked, Row
from experiments.terminal import aligned, say

HELP = (
    """How much cache a model needs, in bytes, from its config.json alone; what fits on given devices; figures of both.

python -m experiments.cache config=path/config.json tokens='[8k,128k]' tp='[1,2,4,8]' kv_dtype=fp8
python -m experiments.cache config=llama3_70b tokens=8k memory=80GB devices=8 reserve=5GB weights=140GB plots=folder

  config=FILE       a Hugging Face config.json, a folder that holds one, or a preset of conf/model (llama3_70b)
  models=FOLDER     every *.json and */config.json there instead; one that cannot be read is a row that says why
  tokens=[8k,128k]  cached tokens (default 8k)
  tp=[1,2,4,8]      devices that share the heads (default 1, or all devices= there are)
  kv_dtype=bf16     bf16, fp16, fp32, fp8, fp8_ds_mla, int8, int4, int4_g<columns per scale> (default bf16)
  form=latent       how an MLA model caches: latent or expanded (per head)
  page=16           entries per page, for the answer as an engine pages it
  sources=yes       below the table, where each number came from: from config, class default or derived
  out=FILE          .csv or .json; all columns, sources among them

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
KEYS = ("config", "models", "tokens", "tp", "kv_dtype", "form", "page", "sources", "out", *FITTING, "plots")


def cache(arguments: Sequence[str]) -> int:
    """Print the tables, write and draw what was asked for; 0, or 3 if a file of a folder could not be read.

    Raises ValueError or OSError for what the user can mend.
    """
    if {"--help", "-h"} & set(arguments):
        print(HELP)
        return 0
    values = parse_pairs(arguments, KEYS)
    asked, sources = points(values), values.get("sources", "no")
    if sources not in ("yes", "no"):
        raise ValueError(f"sources must be yes or no; got {sources!r}")
    out = Path(values["out"]) if "out" in values else None
    if out is not None:
        check_out(out)
    models = models_of(values)
    readable = {label: model for label, model in models.items() if isinstance(model, ModelCache)}
    budgets, load = budgets_of(values, models), load_of(values, asked)
    found = [row for label, model in models.items() for row in _rows(label, model, asked, "config" in values)]
    fitting = [fit for label, budget in budgets.items() for fit in fits.fits(readable[label], load, budget)]
    _say_sizes(found)
    if sources == "yes":
        _say_sources(readable.values())
    if fitting:
        _say_fits(fitting, readable.values())
    drawn = _draw(readable, asked, budgets, Path(values["plots"])) if "plots" in values else []
    for written in _write(out, found, fitting) + drawn:
        say(f"written: {written}")
    return UNCLEAN if any(row.status == ERROR for row in found) else 0


def _rows(label: str, model: ModelCache | Refused, asked: Asked, refuse_formats: bool) -> list[Row]:
    if isinstance(model, Refused):
        return [table.unreadable(label, model.reason)]
    return table.rows(model, asked, refuse_formats)


def _say_sizes(found: Sequence[Row]) -> None:
    header, cells, lines = table.shown(found)
    say("\n".join([aligned(header, cells), *lines]))


def _say_sources(models: Iterable[ModelCache]) -> None:
    for model in models:
        say("\n".join([f"\nWhere the numbers of {model.name} came from:", *(f"  {line}" for line in model.sources)]))


def _say_fits(fitting: Sequence[Fit], models: Iterable[ModelCache]) -> None:
    header, cells, reasons = fits.shown(fitting)
    reasons += [f"{model.name}: {why}" for model in models if (why := fits.variants(model)[1])]
    said = "\nWhat fits, with the model as it is and with other attention in its place:"
    say("\n".join([said, *([aligned(header, cells)] if cells else []), *reasons]))


def _write(out: Path | None, found: Sequence[Row], fitting: Sequence[Fit]) -> list[Path]:
    if out is None:
        return []
    write(found, out, table.COLUMNS)
    if not fitting:
        return [out]
    beside = out.with_name(f"{out.stem}-capacity{out.suffix}")
    write(fitting, beside, fits.COLUMNS)
    return [out, beside]


def _draw(models: Mapping[str, ModelCache], asked: Asked, budgets: Mapping[str, Budget], folder: Path) -> list[Path]:
    if not models:
        return []
    from experiments.sized import Shown, draw_sizes  # matplotlib: a plain table is not to wait for it

    return draw_sizes(Shown(models, asked.formats[0], asked.tokens, asked.tps, budgets), folder)


def main() -> NoReturn:
    """Entry point."""
    leave(cache)


if __name__ == "__main__":
    main()
