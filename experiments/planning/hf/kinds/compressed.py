"""DeepSeek-V4: entries that stand for several tokens, beside a window of the last ones. This is not MLA."""

from experiments.planning.hf.build import compressed
from experiments.planning.hf.fields import Fields
from experiments.planning.hf.kinds.sizes import layer_count, query_heads
from experiments.planning.model_cache import LayerCache

SPARSE, HEAVY, SLIDING = "compressed_sparse_attention", "heavily_compressed_attention", "sliding_attention"
RATES = {SPARSE: 4, HEAVY: 128}
OF_RATIO = {0: SLIDING, 4: SPARSE, 128: HEAVY}


def layers(f: Fields) -> list[LayerCache]:
    """Per layer: a window; of a compressed layer also one entry per 4 or 128 tokens, and at 4 an indexer's key."""
    count, heads, width = layer_count(f), query_heads(f), f.count("head_dim")
    window, index = f.count("sliding_window"), f.count("index_head_dim")
    rates = _rates(f)
    return [
        compressed(heads, width, window, rates.get(kind), index if kind == SPARSE else None)
        for kind in _kinds(f, count)
    ]


def _rates(f: Fields) -> dict[str, int]:
    inner = f.nested("compress_rates")
    rates = {kind: inner.optional_count(kind) or rate for kind, rate in RATES.items()}
    for name, kind in (("compress_rate_csa", SPARSE), ("compress_rate_hca", HEAVY)):
        rates[kind] = f.optional_count(name) or rates[kind]
    return rates


def _kinds(f: Fields, layers: int) -> list[str]:
    named = f.rows("layer_types", None)
    if named is None:
        ratios = f.rows("compress_ratios", None)
        if ratios is None and f.class_name is None:
            raise f.missing("compress_ratios")
        if ratios is None:
            f.pattern("compress_ratios", "two layers at 128:1, then 128:1 and 4:1 in turn")
            return [HEAVY if i < 2 or i % 2 == 0 else SPARSE for i in range(layers)]
        if any(isinstance(r, bool) or not isinstance(r, int) or r not in OF_RATIO for r in ratios):
            raise f.wrong("compress_ratios", "must hold 0, 4 and 128", ratios)
        named = [OF_RATIO[ratio] for ratio in ratios]
    name = "layer_types" if f.has("layer_types") else "compress_ratios"
    if any(kind not in (SPARSE, HEAVY, SLIDING) for kind in named):
        raise f.wrong(name, f"must hold {SPARSE}, {HEAVY} and {SLIDING}", named)
    if len(named) < layers:
        raise f.wrong(name, f"must have an entry for each of num_hidden_layers={layers} layers", named)
    return named[:layers]  # files count the multi-token prediction layer too
