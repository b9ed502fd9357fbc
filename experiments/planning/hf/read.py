"""A config file to the caches of its layers: find the text part, tell the type, read it in its family's way."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.planning.hf.fields import Fields, Unreadable
from experiments.planning.hf.names import COMPRESSED, FOREIGN, TEXT_TYPE
from experiments.planning.hf.source import load
from experiments.planning.hf.types import CLASS_OF, FORM_READERS, PLAIN, READERS, REMOTE
from experiments.planning.model_cache import ModelCache

FORMS = ("latent", "expanded")
TEXT_PARTS = ("text_config", "language_config", "llm_config", "language_model_config")
OUTER_PARTS = ("thinker_config",)
SILENT = {"model_type", "architectures", "auto_map", "transformers_version", "torch_dtype", "dtype", "_name_or_path"}
KNOWN = {*READERS, *FORM_READERS}
OVERRIDDEN = {*PLAIN, "gemma4_text", "gemma4_unified_text", "step3p5"}

Defaults = Mapping[str, Mapping[str, Any]]


def read_file(path: Path, form: str = "latent", defaults: Defaults | None = None) -> ModelCache:
    """The model in ``path``; OSError or ValueError in one line, or Undecided where a class must be asked first."""
    return read_config(load(path), path.name, form, defaults)


def read_config(
    raw: Mapping[str, Any], name: str, form: str = "latent", defaults: Defaults | None = None
) -> ModelCache:
    """The model in a config's data. ``form``: how an MLA model caches. ``defaults``: per type, what its class says."""
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
    part, path, outer = _text_part(raw)
    model_type = _model_type(part, path, outer)
    if not set(part) - SILENT:
        raise Unreadable(f"{path}num_hidden_layers is missing: the file says nothing but its type")
    class_name = None if model_type in REMOTE else CLASS_OF.get(model_type, model_type)
    known = None if defaults is None else defaults.get(class_name or "", {})
    f = Fields(part, model_type, path, class_name, known)
    _refuse_foreign(f)
    if f.has("per_layer_config") and model_type not in OVERRIDDEN and f.raw["per_layer_config"] != {}:
        raise Unreadable(f"{path}per_layer_config is set, and how model_type {model_type!r} uses it is not known")
    if model_type in FORM_READERS:
        layers = FORM_READERS[model_type](f, form)
    elif form == "latent":
        layers = READERS[model_type](f)
    else:
        raise ValueError(f"form {form} is for MLA models; model_type {model_type!r} is none")
    sources = tuple(f"{field}={source}" for field, source in f.sources.items())
    return ModelCache(name, model_type, tuple(layers), sources, tuple(dict.fromkeys(f.notes)))


def _text_part(raw: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str | None]:
    """The mapping that describes the decoder, its path in the file, and the type of what encloses it, if anything."""
    part, path, outer = raw, "", None
    for names in (OUTER_PARTS, TEXT_PARTS):
        for name in names:
            inner = part.get(name)
            if inner is None:
                continue
            if not isinstance(inner, dict):
                raise Unreadable(f"{path}{name} must be an object; got {type(inner).__name__}")
            outer = _named_type(part, path)
            part, path = inner, f"{path}{name}."
            break
    return part, path, outer


def _model_type(part: Mapping[str, Any], path: str, outer: str | None) -> str:
    """The type of the text part: its own, what its architectures say, or what its enclosing type implies."""
    found = _named_type(part, path) or TEXT_TYPE.get(outer or "")
    if found is None:
        raise Unreadable(f"{path}model_type is missing, and architectures do not tell it")
    if found in KNOWN:
        return found
    inner = TEXT_TYPE.get(found)
    if inner is None or inner not in KNOWN:
        why = "how its layers cache would be a guess"
        if part.get("is_encoder_decoder") is True:
            why = "is_encoder_decoder is true, and only decoders are read"
        raise Unreadable(f"{path}model_type {found!r} is not known: {why}")
    if not path and not {"num_hidden_layers", "hidden_size", "num_attention_heads"} & set(part):
        raise Unreadable(f"text_config is missing, and model_type {found!r} needs it")
    return inner


def _named_type(part: Mapping[str, Any], path: str) -> str | None:
    named = part.get("model_type")
    if named is not None:
        if not isinstance(named, str) or len(named) > 100:
            raise Unreadable(f"{path}model_type must be a string; got {type(named).__name__}")
        return named or None
    listed = part.get("architectures")
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(a, str) for a in listed):
        raise Unreadable(f"{path}architectures must be a list of strings; got {type(listed).__name__}")
    return next((_BY_STEM[stem] for stem in map(_stem, listed) if stem in _BY_STEM), None)


def _stem(text: str) -> str:
    """``MiniCPM3ForCausalLM`` and ``minicpm3`` are both ``minicpm3``."""
    return re.sub(r"[-_]", "", re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", text)).lower()


_BY_STEM = {_stem(name): name for name in (*TEXT_TYPE, *READERS, *FORM_READERS)}


def _refuse_foreign(f: Fields) -> None:
    """A type that keeps plain keys and values, or a latent, must not have a field that means another kind of cache."""
    plain = f.model_type in PLAIN and f.raw.get("use_mla") is not False
    if not plain and f.model_type not in FORM_READERS:
        return
    kept = "plain keys and values" if plain else "a latent of every token"
    for name in FOREIGN if plain else COMPRESSED:
        if not _is_idle(name, f.raw.get(name)):
            raise Unreadable(
                f"{f.path}{name} is set, but model_type {f.model_type!r} keeps {kept}: one of the two must be wrong"
            )


def _is_idle(name: str, value: Any) -> bool:
    """Whether a field of another kind of cache says that there is none of it."""
    if name == "attn_type_list" and isinstance(value, list):
        return all(mark == 1 for mark in value)  # MiniMax-M2 says of each layer that it attends
    return value in (None, False, 0, [], {})
