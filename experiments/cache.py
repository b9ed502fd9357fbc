"""How much cache does a model need: ``python -m experiments.cache config=path/config.json tokens='[8k,128k]' tp=8``."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from experiments.pairs import PAIRS_HELP, listed, parse_pairs
from experiments.plain import UNCLEAN, leave
from experiments.planning.formats import parse_format
from experiments.planning.hf.many import Refused, read_many
from experiments.planning.hf.presets import preset
from experiments.planning.hf.read import FORMS, read_config
from experiments.planning.model_cache import ModelCache
from experiments.planning.paging import PAGE
from experiments.planning.table import ERROR, Asked, Row, check_out, rows, text, unreadable, write
from variants.contract.checks import check_count
from variants.contract.tokens import parse_tokens

HELP = (
    """How much cache a model needs, in bytes, from its config.json alone.

python -m experiments.cache config=path/config.json tokens='[8k,128k]' tp='[1,2,4,8]' kv_dtype=fp8

  config=FILE       a Hugging Face config.json, a folder that holds one, or a preset of conf/model (llama3_70b)
  models=FOLDER     every *.json in a folder instead; a file that cannot be read is a row that says why
  tokens=[8k,128k]  cached tokens (default 8k)
  tp=[1,2,4,8]      devices that share the heads (default 1)
  kv_dtype=bf16     bf16, fp16, fp32, fp8, fp8_ds_mla, int8, int4, int4_g<columns per scale> (default bf16)
  form=latent       how an MLA model caches: latent or expanded (per head)
  page=16           entries per page, for the answer as an engine pages it
  out=FILE          .csv or .json; all columns, with where each number came from

"""
    + PAIRS_HELP
)
KEYS = ("config", "models", "tokens", "tp", "kv_dtype", "form", "page", "out")


def cache(arguments: Sequence[str]) -> int:
    """Print the table, write it where asked; 0, or 3 if a file of a folder could not be read.

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
    found = _rows(values, asked, form)
    _say(text(found))
    if out is not None:
        write(found, out)
        _say(f"written: {out}")
    return UNCLEAN if any(row.status == ERROR for row in found) else 0


def _asked(values: Mapping[str, str]) -> Asked:
    tps = [parse_tokens(tp, "tp") for tp in listed("tp", values.get("tp", "1"))]
    page = parse_tokens(values.get("page", str(PAGE)), "page")
    check_count("page", page)
    return Asked(
        tokens=[parse_tokens(tokens) for tokens in listed("tokens", values.get("tokens", "8k"))],
        tps=tps,
        formats=[parse_format(name) for name in listed("kv_dtype", values.get("kv_dtype", "bf16"))],
        page=page,
    )


def _rows(values: Mapping[str, str], asked: Asked, form: str) -> list[Row]:
    if ("config" in values) == ("models" in values):
        raise ValueError("give config=FILE or models=FOLDER, and not both (see --help)")
    if "config" in values:
        return rows(_single(values["config"], form), asked, refuse_formats=True)
    folder = Path(values["models"])
    paths = sorted((*folder.glob("*.json"), *folder.glob("*/config.json")))
    if not paths:
        raise ValueError(f"models must be a folder with *.json or */config.json; got {values['models']!r}")
    labels = [str(path.relative_to(folder)) for path in paths]
    found = []
    for label, model in zip(labels, read_many(paths, form), strict=True):
        if isinstance(model, Refused):
            found.append(unreadable(label, model.reason))
        else:
            found += rows(replace(model, name=label), asked)
    return found


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


def _say(line: str) -> None:
    """Print whatever the terminal can show: a file's name must not end a table in an encoding error."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, errors="replace").decode(encoding))


def main() -> NoReturn:
    """Entry point."""
    leave(cache)


if __name__ == "__main__":
    main()
