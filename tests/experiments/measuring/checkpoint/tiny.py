"""Models of transformers' real classes, a few kilobytes large, with random weights, saved as a person has them."""

import re
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from experiments.measuring.checkpoint.hub import silence
from tests.builders import normal

VOCABULARY = 61
ROPE = {"rope_theta": 10_000.0, "rope_type": "default"}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}
NAMED = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rope_parameters": ROPE,
}
OLD = {"vocab_size": VOCABULARY, "n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 128}
FALCON = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 3, "alibi": False}
NEOX = {**{k: v for k, v in NAMED.items() if k not in ("num_key_value_heads", "rope_parameters")}, "hidden_size": 64}
MLA = {
    **NAMED,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}
MSCALES = {"mscale": 0.7, "mscale_all_dim": 1.0}

MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("llama", NAMED),
    "llama, biases": ("llama", {**NAMED, "attention_bias": True}),
    "llama, wide heads": ("llama", {**NAMED, "head_dim": 12}),
    "llama, llama3": ("llama", {**NAMED, "rope_parameters": {**ROPE, "rope_type": "llama3", **LLAMA3}}),
    "llama, linear": ("llama", {**NAMED, "rope_parameters": {**ROPE, "rope_type": "linear", "factor": 2.0}}),
    "llama, yarn": ("llama", {**NAMED, "rope_parameters": {**ROPE, **YARN}}),
    "mistral, window": ("mistral", {**NAMED, "sliding_window": 8}),
    "qwen2": ("qwen2", NAMED),
    "qwen2, windows above": (
        "qwen2",
        {**NAMED, "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {**NAMED, "head_dim": 16}),
    "gpt2": ("gpt2", OLD),
    "gpt2, scaled by layer": ("gpt2", {**OLD, "scale_attn_by_inverse_layer_idx": True}),
    "gpt2, unscaled": ("gpt2", {**OLD, "scale_attn_weights": False}),
    "gpt_neox": ("gpt_neox", {**NEOX, "rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}}),
    "gpt_neox, no biases": ("gpt_neox", {**NEOX, "attention_bias": False, "rope_parameters": ROPE}),
    "gpt_bigcode": ("gpt_bigcode", OLD),
    "gpt_bigcode, mha": ("gpt_bigcode", {**OLD, "multi_query": False}),
    "falcon": ("falcon", {**FALCON, "multi_query": True}),
    "falcon, mha, biases": ("falcon", {**FALCON, "multi_query": False, "bias": True, "parallel_attn": False}),
    "falcon, new": ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "deepseek_v2": ("deepseek_v2", {**MLA, "rope_parameters": {**ROPE, **YARN, **MSCALES}}),
    "deepseek_v3": ("deepseek_v3", {**MLA, "q_lora_rank": 12, "rope_parameters": {**ROPE, **YARN, **MSCALES}}),
    "deepseek_v3, half-split": ("deepseek_v3", {**MLA, "rope_interleave": False}),
}

GGML = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
    "input_layernorm": "attn_norm",
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def make(kind: str, sizes: Mapping[str, Any]) -> Any:
    """The model, with weights that spread its scores and its logits: a flat softmax hides faults."""
    import transformers

    config = transformers.CONFIG_MAPPING[kind](
        **deepcopy(dict(sizes))
    )  # classes write into a mapping that they are given
    model = transformers.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval().requires_grad_(False)
    for index, (name, parameter) in enumerate(model.named_parameters()):
        noise = normal(*parameter.shape, seed=index, dtype=torch.float32)
        if parameter.ndim > 1:
            noise *= 1.5 * min(parameter.shape[-2:]) ** -0.5
        else:
            noise = 0.3 * noise + (0.0 if name.endswith("bias") else 1.0)
        parameter.copy_(noise)
    return model


def save(folder: Path, name: str = "llama", **changes: Any) -> Path:
    """The folder with config.json and safetensors of a model of ``MODELS``."""
    kind, sizes = MODELS[name]
    with silence():
        make(kind, {**sizes, **changes}).save_pretrained(folder)
    return folder


def tokens(count: int, seed: int = 0) -> torch.Tensor:
    """Random tokens, [1, count]."""
    return torch.randint(VOCABULARY, (1, count), generator=torch.Generator().manual_seed(seed))


def with_tokenizer(folder: Path) -> Path:
    """The folder with a tokenizer that knows the words w0 to w60."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{number}": number for number in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(folder)
    return folder


def with_letters(folder: Path) -> Path:
    """The folder with a tokenizer of single characters, for which real text is not one word that it does not know."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    known = "?abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,()'\n"[:VOCABULARY]
    letters = Tokenizer(models.WordLevel({letter: number for number, letter in enumerate(known)}, unk_token="?"))
    letters.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="?").save_pretrained(folder)
    return folder


def save_gguf(path: Path, kind: str, leave_out: Collection[str] = (), **fields: Any) -> Any:
    """A GGUF file as llama.cpp writes one, and the model that is in it; ``fields`` are further strings of the file."""
    from gguf import GGUFWriter

    model = make(kind, {**NAMED, "tie_word_embeddings": False})
    writer, config = GGUFWriter(path, kind), model.config
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim if kind == "qwen3" else 8)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for name, value in fields.items():
        writer.add_string(f"{kind}.{name.replace('__', '.')}", value)
    for name, tensor in _as_llama_cpp(model, kind):
        if name not in leave_out:
            writer.add_tensor(name, tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _as_llama_cpp(model: Any, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Names of ggml; of Llama, rows of q and k by rotated pairs (its convert_hf_to_gguf.py, ``permute``)."""
    for name, parameter in model.named_parameters():
        stem, part = name.rsplit(".", 1)
        place = re.sub(r"^model\.layers\.(\d+)\.", r"blk.\1.", stem)
        for theirs, ggml in GGML.items():
            place = place.replace(theirs, ggml)
        heads = {"attn_q": 4, "attn_k": 2}.get(place.split(".")[-1], 0) if kind == "llama" else 0
        if heads:
            halves = parameter.reshape(heads, 2, parameter.shape[0] // heads // 2, *parameter.shape[1:])
            parameter = halves.swapaxes(1, 2).reshape(parameter.shape)
        yield f"{place}.{part}", parameter
