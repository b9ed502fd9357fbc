"""How well a model with other attention foretells a text: perplexity, and its distance from the original's guesses."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.run import logits_of, uncached
from variants.protocols import Attention

ROWS = 128  # places whose distributions are in memory at once, in float64


@dataclass(frozen=True)
class Score:
    """Nats per token, one mean per window: ``nll`` of the text, ``kl`` of the original's guesses to these."""

    nll: tuple[float, ...]
    kl: tuple[float, ...]


def score(checkpoint: Checkpoint, attentions: Sequence[Attention], windows: Int[Tensor, "N T"]) -> Score:
    """Each window on its own, without a cache: every token after the first, given those before it in the window.

    The original is our textbook layers over the checkpoint's weights, so that its distance from itself is zero.
    """
    found = [_of_window(checkpoint, attentions, window) for window in windows.to(checkpoint.model.device).split(1)]
    return Score(tuple(nll for nll, _ in found), tuple(kl for _, kl in found))


def _of_window(
    checkpoint: Checkpoint, attentions: Sequence[Attention], window: Int[Tensor, "1 T"]
) -> tuple[float, float]:
    original = _logits(checkpoint, checkpoint.attentions, window)
    same = tuple(attentions) == tuple(checkpoint.attentions)
    guessed = original if same else _logits(checkpoint, attentions, window)
    nll = kl = 0.0
    parts = (rows.split(ROWS) for rows in (original, guessed, window[0, 1:]))
    for theirs, ours, tokens in zip(*parts, strict=True):
        log_p, log_q = theirs.double().log_softmax(dim=-1), ours.double().log_softmax(dim=-1)
        nll -= float(log_q.gather(-1, tokens[:, None]).sum())
        kl += float((log_p.exp() * (log_p - log_q)).sum())
    places = window.shape[1] - 1
    return nll / places, max(kl, 0.0) / places


def _logits(
    checkpoint: Checkpoint, attentions: Sequence[Attention], window: Int[Tensor, "1 T"]
) -> Float[Tensor, "P V"]:
    with torch.no_grad(), uncached(checkpoint, attentions) as model:
        return logits_of(model, window[:, :-1], keep=0)[0]
