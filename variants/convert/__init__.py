"""One variant's weights as another's: what a trained layer becomes when it must cache something else.

    from      to                    how                                          what is lost
    grouped   more kv heads         each head repeated                           nothing, to rounding
    grouped   fewer kv heads, MQA   heads of a group averaged                    lossy
    grouped   MLA                   keys partly unrotated, [key, value] at rank  lossy, but where no byte is saved

Source: averaging - Ainslie et al. 2023 (arXiv 2305.13245), section 2.1; unrotating and the joint factorisation -
TransMLA (arXiv 2502.07864) and MHA2MLA (arXiv 2502.14837).
Differs: see ``rotation`` (heads are mixed by unitary, not orthogonal matrices; no FreqFold) and ``factor`` (errors
are weighed by what queries and the output projection make of them, not by norms alone).
"""

from variants.convert.conversion import Conversion, convert, relative_error
from variants.convert.targets import as_latent, with_kv_heads

__all__ = ["Conversion", "as_latent", "convert", "relative_error", "with_kv_heads"]
