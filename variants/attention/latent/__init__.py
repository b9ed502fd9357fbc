"""Latent attention (MLA, GLA): keys and values live in compressed latents, plus one shared rotary key.

    symbol (DeepSeek-V2)   field                meaning
    n_h                    num_q_heads          query heads
    d_c                    kv_lora_rank         width of the cached latent c_KV (GLA: of all latent heads together)
    h_c (GLA)              num_latent_heads     L: latent heads, each read by n_h / L query heads; MLA has one
    d_c'                   q_lora_rank          width of the query latent (None: queries are projected directly)
    d_h                    qk_nope_head_dim     per-head width without rotation
    d_h^R                  qk_rope_head_dim     width of the rotary part, shared by all heads of the key
    -                      v_head_dim           per-head value width
    W_DKV, W_KR            kv_a_proj            x -> latent, rotary key
    W_UK, W_UV             kv_b_proj            latent -> per-head keys, values

    form          cached                                  K              V       kv_b_proj runs
    absorbed      latent L x d_c/L, rope 1 x d_h^R        latent + rope  latent  on q (W_UK) and on the output (W_UV)
    materialized  the same                                decompressed           on every cached token, at every step
    expanded      key n_h x (d_h + d_h^R), value n_h x v  key            value   on every token once, when appended

A converted layer (variants/convert) may have no norm on its latent, biases, and keys that are all rotary (d_h = 0:
queries are zero on the latent) or not at all (d_h^R = 0: there is no rope stream).

Bytes per token and layer: d_c + d_h^R elements, whatever n_h (expanded: n_h (d_h + d_h^R + v)).

Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1, eqs. 9-19 and appendix C; RMSNorm on both latents and the YaRN
softmax factor as in DeepSeek-V3's inference/model.py. GLA: Zadouri, Strauss, Dao 2025 (arXiv 2505.21487).
Differs: prefill of a latent cache always runs materialized (absorbed prefill costs 3.4x the attention FLOPs);
GLA's latent heads are normed one by one with one weight between them.
"""

from variants.attention.latent.spec import LatentSpec as plugin

__all__ = ["plugin"]
