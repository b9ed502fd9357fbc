"""Keys and values in full, one pair per key/value head: MHA, GQA and MQA are three values of ``num_kv_heads``.

    stream   heads x width            read as
    key      num_kv_heads x head_dim  K, rotated
    value    num_kv_heads x head_dim  V

Bytes per token and layer: 2 * num_kv_heads * head_dim elements (MHA: one pair per query head; MQA: one pair in all).

Source: MHA - Vaswani et al. 2017, section 3.2.2; MQA - Shazeer 2019, section 3; GQA - Ainslie et al. 2023, section 2.2.
Differs: query head h reads kv head floor(h / group), the order of all published checkpoints.
"""

from variants.attention.grouped.spec import GroupedSpec as plugin

__all__ = ["plugin"]
