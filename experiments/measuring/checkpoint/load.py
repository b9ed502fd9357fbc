"""Load a checkpoint: transformers reads it, and what does not fit is said in one line."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from experiments.measuring.checkpoint.config import ATTENTION, make_config, read_config
from experiments.measuring.checkpoint.families import FAMILIES, ours
from experiments.measuring.checkpoint.gguf import open_gguf
from experiments.measuring.checkpoint.hub import one_line, silence, transformers
from experiments.measuring.checkpoint.shape import shape_of
from experiments.measuring.checkpoint.source import Source, find_source
from variants.contract.dtype import Dtype
from variants.contract.model import ModelShape
from variants.protocols import Attention, Spec
from variants.view import TORCH_DTYPES

DISAGREE = "config and weights disagree"


@dataclass(frozen=True)
class Checkpoint:
    """``model`` is transformers' own and whole; ``attentions`` are ours, one per layer, over the same weights.

    ``note``: what was done to the weights on the way; empty if nothing.
    """

    source: Source
    model: Any
    shape: ModelShape
    attentions: tuple[Attention, ...]
    note: str

    @property
    def specs(self) -> tuple[Spec, ...]:
        """What each layer's attention is."""
        return tuple(attention.spec for attention in self.attentions)

    @property
    def most_tokens(self) -> int:
        """The longest text that the model was made for."""
        return int(self.model.config.max_position_embeddings)

    def tokenizer(self) -> Any:
        """The checkpoint's tokenizer; ValueError in one line if it has none that can be read."""
        path = self.source.path
        where = {"gguf_file": path.name} if self.source.is_gguf else {}
        folder = path.parent if self.source.is_gguf else path
        try:
            with silence():
                return transformers().AutoTokenizer.from_pretrained(
                    str(folder), local_files_only=True, trust_remote_code=False, **where
                )
        except Exception as error:  # OSError, KeyError, TypeError...: whatever its file lacks
            raise ValueError(f"{path} has no tokenizer that can be read: {one_line(error)}") from None


def load(asked: object, dtype: Dtype = Dtype.F32) -> Checkpoint:
    """The model that ``asked`` names (``smollm2``, a folder, a .gguf file), in evaluation mode, without gradients.

    Raises ValueError in one line: see ``source``, ``headers``, ``config``, ``shape`` and ``gguf`` for the reasons.
    """
    source = find_source(asked)
    read = _gguf if source.is_gguf else _folder
    with silence():
        model, shape, note = read(source, TORCH_DTYPES[dtype])
    specs = _specs(model.config, shape)
    model.eval().requires_grad_(False)
    return Checkpoint(source, model, shape, ours(model, specs), note)


def _specs(config: Any, shape: ModelShape) -> list[Spec]:
    return [FAMILIES[config.model_type].spec(config, shape, layer) for layer in range(shape.num_hidden_layers)]


def _checked_shape(config: Any, source: Source) -> ModelShape:
    """The shape, once every layer's spec has been tried: before any weight is read."""
    try:
        shape = shape_of(config, source.name, str(source.path))
        _specs(config, shape)
    except ValueError as error:
        raise ValueError(f"{source.path}: {one_line(error)}") from None
    return shape


def _folder(source: Source, dtype: torch.dtype) -> tuple[Any, ModelShape, str]:
    config = read_config(source.path)
    shape = _checked_shape(config, source)
    return _pretrained(source.path, config, dtype, str(source.path)), shape, ""


def _gguf(source: Source, dtype: torch.dtype) -> tuple[Any, ModelShape, str]:
    file = open_gguf(source.path)
    config = make_config(file.config(), str(source.path))
    shape = _checked_shape(config, source)
    with torch.device("meta"):
        named = _class_of(config)(config)
    return _pretrained(source.path, config, dtype, None, state_dict=file.state(named, dtype)), shape, file.note


def _pretrained(path: Path, config: Any, dtype: torch.dtype, folder: str | None, **state: Any) -> Any:
    """transformers' model, once all its weights have come from the file and all of the file's have a place in it."""
    try:
        model, found = _class_of(config).from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=ATTENTION,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # so that they come back as a list, and not as a page
            output_loading_info=True,
            **state,
        )
    except Exception as error:  # what is left: a file that changed meanwhile, or sizes that no model can have
        raise ValueError(f"{path}: {one_line(error)}") from None
    wrong = {
        f"{name} is {tuple(held)} in the file and {tuple(wanted)} by the config"
        for name, held, wanted in found["mismatched_keys"]
    }
    for what, names in (
        ("", wrong),
        ("missing: ", found["missing_keys"]),
        ("in no layer of the config: ", found["unexpected_keys"]),
    ):
        if names:
            raise ValueError(f"{path}: {DISAGREE}: {what}{_first(names)}")
    return model


def _first(names: Collection[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{min(names)}{more}"


def _class_of(config: Any) -> Any:
    return transformers().MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
