"""Grouped tied attention (GTA): one state per kv head is the value and, with a shared rotary key, the key.

    stream   heads x width               read as
    tied     num_kv_heads x head_dim     V: all of it; K: its first head_dim - qk_rope_head_dim columns
    rope     1 x qk_rope_head_dim        K: the last columns of every head, rotated, shared by all kv heads

Bytes per token and layer: num_kv_heads * head_dim + qk_rope_head_dim elements, about half of GQA's.

Source: Zadouri, Strauss, Dao 2025, "Hardware-Efficient Attention for Fast Decoding" (arXiv 2505.21487), section 3.3.1.
Differs: qk_rope_head_dim may be any even width below head_dim; the paper uses head_dim / 2.
"""

from variants.attention.tied.spec import TiedSpec as plugin

__all__ = ["plugin"]
