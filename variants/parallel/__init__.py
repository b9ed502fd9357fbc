"""One decode step by several processes under torch.distributed, each with its shard of the layer.

    split     each rank holds                                    what is exchanged per step
    tp heads  query heads, their kv heads (or a copy of the one  outputs are summed: an all-reduce of [B, Q, D]
              they read), those rows of the weights; a latent
              and a shared rotary key whole
    cp        every cp-th run of ``block`` tokens of the cache;  partial outputs and their log-sum-exp: an all-gather
              weights and queries whole                          of [B, 1, H, V + 1], merged by every rank alike

A new token is cached by one rank of the cp ranks, the owner of its position (``variants.contract.ranks.Turns``).

Source: tensor parallelism - Megatron-LM (arXiv 1909.08053), section 3: columns of the projections into heads, rows of
the one out of them, one all-reduce. Merging partial softmaxes - Flash-Decoding (Dao et al. 2023); in that place between
ranks - Helix (arXiv 2507.07120), which also takes turns at caching new tokens.
Differs: all cp ranks run the output projection on the same merged heads, where Helix shards it once more; a cp step
brings one token to sequences of one length.
"""
