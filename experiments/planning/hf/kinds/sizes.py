"""What sizes are called: every name in use for a count, the usual one first."""

from experiments.planning.hf.fields import LAYERS, MOST_LAYERS, Fields, Unreadable

HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim", "n_embed", "dim_model", "embed_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "n_kv_heads", "kv_n_heads", "num_attention_groups")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "d_head", "dim_head", "d_kv")
MULTI_QUERY = ("multi_query", "multi_query_attention")
LENGTH = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "seq_length",
)


def layer_count(f: Fields) -> int:
    """Layers of the decoder."""
    return f.checked(f.called(*LAYERS), f.count(*LAYERS), MOST_LAYERS)


def hidden_size(f: Fields) -> int | None:
    """Model width, None where the file does not say (only weights need it)."""
    return f.optional_count(*HIDDEN)


def query_heads(f: Fields) -> int:
    """Query heads."""
    return f.count(*HEADS)


def kv_heads(f: Fields, heads: int, asks: bool) -> int:
    """Key/value heads: the file's, the class's where it has a number of its own, else one per query head (MHA)."""
    value = f.asked_count(*KV_HEADS) if asks else f.optional_count(*KV_HEADS)
    if value is None:
        others = f", nor {', '.join(KV_HEADS[1:])}"
        why = f"{f.called(*KV_HEADS)} is null" if f.null(*KV_HEADS) else f"{KV_HEADS[0]} is not in the file{others}"
        f.notes.append(f"assumed MHA: {why}")
        return f.derived(KV_HEADS[0], heads, "one per query head")
    return grouping(f, heads, value)


def one_head(f: Fields) -> int | None:
    """One key/value head for all query heads, where a flag says so and the file states no number of them."""
    kind = f.word("attention_head_type")
    if kind not in (None, "multihead", "multiquery"):
        raise f.wrong("attention_head_type", "must be multihead or multiquery", kind)
    flagged = kind == "multiquery" or any(f.has(name) and f.flag(name, False) for name in MULTI_QUERY)
    return f.derived(KV_HEADS[0], 1, "one for all query heads") if flagged and not f.has(*KV_HEADS) else None


def grouping(f: Fields, heads: int, kv: int, name: str | None = None, heads_name: str | None = None) -> int:
    """``kv`` if it divides ``heads``; Unreadable naming both fields if not."""
    if heads % kv:
        ours, theirs = name or f.called(*KV_HEADS), heads_name or f.called(*HEADS)
        raise Unreadable(f"{f.path}{ours} must divide {theirs}; got {theirs}={heads}, {ours}={kv}")
    return kv


def head_dim(f: Fields, heads: int, asks: bool) -> int:
    """Columns of a key head: the file's, the class's where it has a number of its own, else hidden_size / heads."""
    value = f.asked_count(*HEAD_DIM) if asks else f.optional_count(*HEAD_DIM)
    return quotient(f, heads) if value is None else value


def quotient(f: Fields, heads: int) -> int:
    """hidden_size / num_attention_heads; Unreadable if that is no whole number."""
    hidden, wide, many = f.count(*HIDDEN), f.called(*HIDDEN), f.called(*HEADS)
    if hidden % heads:
        raise Unreadable(
            f"{f.path}{f.called(*HEAD_DIM)} is not given, so {many} must divide {wide}; "
            f"got {wide}={hidden}, {many}={heads}"
        )
    return f.derived("head_dim", hidden // heads, f"{wide} / {many}")


def longest(f: Fields) -> int | None:
    """The longest context the model was made for."""
    return f.optional_count(*LENGTH)
