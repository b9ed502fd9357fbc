"""Whether a model with our attention says what transformers' own says: the same logits, the same greedy tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from experiments.measuring.checkpoint.hub import silence, transformers
from experiments.measuring.checkpoint.load import Checkpoint
from experiments.measuring.checkpoint.run import Run, logits_of, uncached
from experiments.measuring.checkpoint.seat import Layer, seated
from variants.decode import Decoder
from variants.protocols import Attention

NO_TOKEN = -1  # None would mean the checkpoint's own
NEAR = 10.0  # times the largest logit error: two tokens nearer than that may change places


@dataclass(frozen=True)
class Text:
    """A prompt, what transformers says after it, and the logits it chose by; ``prompt`` tokens come first."""

    ids: Int[Tensor, "B T"]
    logits: Float[Tensor, "B N V"]
    prompt: int


@dataclass(frozen=True)
class Parity:
    """``logit_error``: largest absolute difference. ``gaps``: how far apart its two stood, of each differing token."""

    tokens: int
    logit_error: float
    gaps: tuple[float, ...]

    @property
    def holds(self) -> bool:
        """Whether rounding explains every token that differs."""
        return all(gap < NEAR * self.logit_error for gap in self.gaps)

    def __str__(self) -> str:
        differ = f"{len(self.gaps)} differ by at most {max(self.gaps):.2g}" if self.gaps else "all equal"
        return f"{self.tokens} greedy tokens, {differ}; largest logit error {self.logit_error:.2g}"


def theirs(checkpoint: Checkpoint, prompt: Int[Tensor, "B T"], tokens: int) -> Text:
    """What transformers' own ``generate`` makes of a prompt, greedily, over its own cache; no token ends it."""
    settings = transformers().GenerationConfig(
        max_new_tokens=tokens,
        do_sample=False,
        pad_token_id=0,
        eos_token_id=NO_TOKEN,
        output_logits=True,
        return_dict_in_generate=True,
    )
    with torch.no_grad(), silence():
        out = checkpoint.model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=settings)
    return Text(out.sequences, torch.stack(out.logits, dim=1).float(), prompt.shape[1])


def read(checkpoint: Checkpoint, ids: Int[Tensor, "B T"], prompt: int) -> Text:
    """A given text, and what transformers would say at each place of it after the first ``prompt`` tokens."""
    with torch.no_grad():
        logits = logits_of(checkpoint.model, ids[:, :-1], keep=ids.shape[1] - prompt)
    return Text(ids, logits.float(), prompt)


def cached(text: Text, checkpoint: Checkpoint, runs: Sequence[Run]) -> list[Parity]:
    """Ours over the caches of each run: the prompt at once, then token by token, as transformers said them.

    Where every token is the same, greedy decoding of ours says the same text; where one may differ, those after it are
    still compared. Runs are of the same weights and go abreast, as rows of a batch: what they share is computed once.
    """
    layers = [_abreast(of_runs) for of_runs in zip(*(run.decoders for run in runs), strict=True)]
    parts = text.ids[:, :-1].split([text.prompt, *[1] * (text.ids.shape[1] - text.prompt - 1)], dim=1)
    steps, start = [], 0
    with torch.no_grad(), seated(checkpoint.model, layers):
        for part in parts:
            steps.append(logits_of(checkpoint.model, part.expand(len(runs), -1), 1, start))
            start += part.shape[1]
    for run in runs:
        run.tokens = start
    return [compared(text, logits[None]) for logits in torch.cat(steps, dim=1)]


def recomputed(text: Text, checkpoint: Checkpoint, attentions: Sequence[Attention]) -> Parity:
    """Ours without a cache. A causal model says of a whole text at once what it says of each of its beginnings."""
    with torch.no_grad(), uncached(checkpoint, attentions) as model:
        logits = logits_of(model, text.ids[:, :-1], keep=text.logits.shape[1])
    return compared(text, logits)


def _abreast(decoders: Sequence[Decoder]) -> Layer:
    """A row for each decoder of a layer: every one writes to its cache and attends by its backend."""
    attention = decoders[0].attention

    def layer(x: Tensor) -> Tensor:
        rows = [slice(row, row + 1) for row in range(len(x))]
        if x.shape[1] > 1:
            return torch.cat([decoder.prefill(x[row]) for decoder, row in zip(decoders, rows, strict=True)])
        at = decoders[0].cache.view.lengths[0].long().expand(len(x), 1).clone()  # by value: a write changes it
        q, entries = attention.query(x, at), attention.entry(x, at)
        attended = []
        for decoder, row in zip(decoders, rows, strict=True):
            step, _ = decoder.next_step()
            decoder.cache.write({name: entry[row] for name, entry in entries.items()}, at[row])
            attended.append(step.attend(q[row])[0].clone())  # holds until the next call only
        return attention.output(torch.cat(attended))

    return layer


def compared(text: Text, logits: Float[Tensor, "B N V"]) -> Parity:
    """Our logits, place by place, with those the text was chosen by."""
    chosen, ours = text.logits.argmax(dim=-1), logits.float().argmax(dim=-1)
    both = torch.stack([chosen, ours], dim=-1)
    top = text.logits.gather(-1, both)
    gaps = (top[..., 0] - top[..., 1])[chosen != ours]
    return Parity(chosen.numel(), float((logits - text.logits).abs().max()), tuple(gaps.tolist()))
