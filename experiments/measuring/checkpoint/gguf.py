"""A GGUF file: the config that it stands for, and its tensors under transformers' names, dequantised once.

Read here, with the package ``gguf``, because transformers reads the file several times, wants accelerate for it, and
leaves out what it does not know (frequencies of a rope scaling, biases) without a word. Format: ggml's docs/gguf.md.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from experiments.measuring.checkpoint.hub import one_line

ARCHITECTURES = ("llama", "qwen2", "qwen3")  # each has the model_type of that name
EXACT = ("F32", "F16", "BF16")  # types of tensors that are numbers already
FIELDS = {  # of a config.json: in the file, after its architecture
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "max_position_embeddings": "context_length",
    "rope_theta": "rope.freq_base",
}
ENDS = {"bos_token_id": "tokenizer.ggml.bos_token_id", "eos_token_id": "tokenizer.ggml.eos_token_id"}


@dataclass(frozen=True)
class Gguf:
    """The file's fields, and its tensors by their own names, still as they lie in the file."""

    path: Path
    fields: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        """What kind of model it is."""
        return str(self.fields.get("general.architecture"))

    @property
    def note(self) -> str:
        """Which tensors were codes; empty if none were."""
        types = Counter(tensor.tensor_type.name for tensor in self.tensors.values())
        codes = ", ".join(name for name, _ in types.most_common() if name not in EXACT)
        return f"{codes} dequantised once" if codes else ""

    def config(self) -> dict[str, Any]:
        """The fields of a config.json; ValueError naming one that the file lacks."""
        raw: dict[str, Any] = {"model_type": self.architecture}
        for name, field in FIELDS.items():
            raw[name] = self._field(field)
        raw |= {name: self.fields[field] for name, field in ENDS.items() if field in self.fields}
        width = self.fields.get(f"{self.architecture}.attention.key_length")
        raw["head_dim"] = width or raw["hidden_size"] // raw["num_attention_heads"]
        turned = self.fields.get(f"{self.architecture}.rope.dimension_count", raw["head_dim"])
        if turned != raw["head_dim"]:
            raise ValueError(f"{self.path}: rope over part of a head is not read from GGUF; got {turned} columns")
        raw["vocab_size"] = int(self._tensor("token_embd.weight").shape[-1])  # sizes stand in reverse
        raw["tie_word_embeddings"] = "output.weight" not in self.tensors
        raw["attention_bias"] = "blk.0.attn_q.bias" in self.tensors
        return raw

    def state(self, model: Any, dtype: torch.dtype) -> dict[str, Tensor]:
        """Tensors under the names of ``model``, which may be on no device; those it has no name for under their own."""
        ours = dict(self._names(model))
        return {
            ours.get(name, name): self._read(name, tensor, dtype, model.config) for name, tensor in self.tensors.items()
        }

    def _names(self, model: Any) -> Iterator[tuple[str, str]]:
        """(name in the file, name in the model) of every parameter that has a name in files."""
        from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

        (arch,) = (arch for arch, name in MODEL_ARCH_NAMES.items() if name == self.architecture)
        known = get_tensor_name_map(arch, model.config.num_hidden_layers)
        for name, _ in model.named_parameters():
            stem, _, part = name.rpartition(".")
            found = known.get_name(stem)
            if found is not None:
                yield f"{found}.{part}", name

    def _read(self, name: str, tensor: Any, dtype: torch.dtype, config: Any) -> Tensor:
        from gguf import dequantize

        numbers = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy()).to(dtype)
        heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}.get(name.split(".")[-2])
        if self.architecture == "llama" and heads:  # rows of a rotated pair lie side by side there, and apart here
            numbers = rearrange(numbers, "(h pair two) ... -> (h two pair) ...", h=heads, two=2)
        return numbers

    def _field(self, name: str) -> Any:
        full = f"{self.architecture}.{name}"
        if full not in self.fields:
            raise ValueError(f"{self.path}: config has no {full}")
        return self.fields[full]

    def _tensor(self, name: str) -> Any:
        if name not in self.tensors:
            raise ValueError(f"{self.path}: missing: {name}")
        return self.tensors[name]


def open_gguf(path: Path) -> Gguf:
    """The file, mapped; ValueError if it is cut short, damaged, or of a kind that is not read here."""
    if find_spec("gguf") is None:
        raise ValueError("a GGUF file needs the package gguf: pip install 'kvariants[hf]'")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(path)
        fields = {name: f.contents() for name, f in reader.fields.items() if not _is_list(name)}
    except Exception as error:  # it indexes and reshapes a mapped file: any error there means damage
        raise ValueError(f"{path} is cut short or no GGUF file: {one_line(error)}") from None
    file = Gguf(path, fields, {tensor.name: tensor for tensor in reader.tensors})
    if file.architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise ValueError(f"{path}: architecture of a GGUF file must be one of {known}; got {file.architecture!r}")
    scaling = fields.get(f"{file.architecture}.rope.scaling.type", "none")
    if "rope_freqs.weight" in file.tensors or scaling != "none":
        raise ValueError(f"{path}: rope scaling of a GGUF file is not supported; take the model as safetensors")
    return file


def _is_list(name: str) -> bool:
    """The vocabulary, which takes seconds to turn into words."""
    return name.startswith("tokenizer.") and not name.endswith("_token_id")
