"""A real checkpoint writes, over caches of ours: ``python -m experiments.generate prompt="The capital of France is"``.

Text goes to standard output as it comes, numbers after it. Exit code 2: bad input, a checkpoint that cannot be read, or
a cache that the storage or the backend refuses.
"""

import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from experiments.door import Composed, open_door

if TYPE_CHECKING:
    from experiments.measuring.checkpoint.generate import Generated
    from experiments.measuring.checkpoint.load import Checkpoint
    from experiments.measuring.checkpoint.run import Run
    from variants.contract.dtype import Dtype
    from variants.protocols import Attention

TYPED = "prompt="
WINDOW, WINDOWS = 512, 8  # of text that lossy conversions are fitted to


def generate(configs: Sequence[Composed]) -> int:
    """Generate from each config; 0. ValueError in one line for what cannot be, with nothing printed of that config."""
    for config in configs:
        _generate(config)
    return 0


def main() -> None:
    """Entry point of ``kvariants-generate``."""
    sys.argv[1:] = [quoted(argument) for argument in sys.argv[1:]]
    open_door("generate", generate)


def quoted(argument: str) -> str:
    """``prompt=`` as typed: Hydra would read a comma as a sweep and an apostrophe as a quote."""
    text = argument.removeprefix(TYPED)
    if text == argument or (len(text) > 1 and text[0] == text[-1] and text[0] in "'\""):
        return argument
    # a quote would end it and ${ be looked up; backslashes count only before these, and then in pairs
    text = re.sub(r'(\\*)("|\$\{)', lambda found: 2 * found[1] + "\\" + found[2], text)
    ending = len(text) - len(text.rstrip("\\"))
    return f'{TYPED}"{text}' + "\\" * ending + '"'


def _generate(config: Composed) -> None:
    from experiments.measuring.checkpoint.generate import greedy, warm_up
    from experiments.measuring.checkpoint.load import load
    from experiments.measuring.checkpoint.run import Run
    from experiments.measuring.series import make_plugin
    from experiments.terminal import say

    values = config.values
    tokens, dtype, kv_dtype = _checked(values)
    policy, backend = make_plugin("storage", values["storage"]), make_plugin("backend", values["backend"])
    if sys.stderr.isatty():
        print(f"loading {values['checkpoint']} ...", file=sys.stderr)
    started = time.perf_counter()
    checkpoint = load(values["checkpoint"], dtype)
    tokenizer = checkpoint.tokenizer()
    loaded_s = time.perf_counter() - started
    prompt = _prompt(checkpoint, tokenizer, values["prompt"], tokens)
    capacity = len(prompt) + tokens
    attentions, made = _attentions(checkpoint, values, capacity)

    def run() -> Run:
        return Run(checkpoint, attentions, policy, backend, capacity, kv_dtype)

    warm_up(run(), prompt, tokens)
    say("\n".join([_heading(checkpoint, attentions[0], config, loaded_s), *made, ""]))
    writer, timed, ends = Writer(tokenizer, prompt), run(), _ends(checkpoint) if values["stop"] else ()
    said = greedy(timed, prompt, tokens, ends, writer)
    writer.close()
    say("\n" + "\n".join(_told(said, timed, len(prompt), said.tokens[-1] in ends)))


def _checked(values: dict[str, Any]) -> "tuple[int, Dtype, Dtype | None]":
    """New tokens, dtype and cache dtype (None: the same); ValueError for what needs no checkpoint to be wrong."""
    from experiments.measuring.device import find_device
    from variants.contract.checks import check_count
    from variants.contract.dtype import Dtype

    if not isinstance(values["stop"], bool):
        raise ValueError(f"stop must be true or false; got {values['stop']!r}")
    check_count("tokens", values["tokens"])
    dtype, here = Dtype.parse(values["dtype"]), find_device("cpu")
    assert here is not None
    if reasons := here.refuses(dtype):
        raise ValueError("; ".join(reasons))
    return values["tokens"], dtype, None if values["kv_dtype"] is None else Dtype.parse(values["kv_dtype"])


def _attentions(
    checkpoint: "Checkpoint", values: dict[str, Any], capacity: int
) -> "tuple[tuple[Attention, ...], list[str]]":
    """The layers, and a line about what was done to their weights, if anything."""
    from experiments.measuring.checkpoint.conversion import attentions_as, windowed
    from experiments.measuring.checkpoint.corpus import calibration_of, encoder
    from experiments.measuring.checkpoint.words import converted

    def text() -> Any:
        return calibration_of(encoder(checkpoint), min(WINDOW, checkpoint.most_tokens), WINDOWS).windows

    made = attentions_as(checkpoint, values.get("attention"), text)
    ring = values["storage"]["kind"] == "ring"
    layers = windowed(made.attentions, capacity) if ring else made.attentions
    return layers, converted(checkpoint, made)


def _prompt(checkpoint: "Checkpoint", tokenizer: Any, text: object, tokens: int) -> list[int]:
    """The prompt's tokens; ValueError if there are none, or more with the new ones than the model has positions."""
    prompt: list[int] = tokenizer(str(text)).input_ids
    if not prompt:
        raise ValueError(f"prompt must hold at least one token; got {text!r}")
    if len(prompt) + tokens > checkpoint.most_tokens:
        raise ValueError(
            f"prompt and tokens must have at most {checkpoint.most_tokens} positions; got {len(prompt)} and {tokens}"
        )
    return prompt


def _ends(checkpoint: "Checkpoint") -> tuple[int, ...]:
    """Tokens after which the checkpoint says nothing more."""
    ends = checkpoint.model.config.eos_token_id
    return () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)


class Writer:
    """Writes text as its tokens come; bytes of a character that is not yet whole are held back."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._tokens = list(prompt)
        self._written = 0
        self._write(self._text())

    def __call__(self, token: int) -> None:
        """One more token."""
        self._tokens.append(token)
        text = self._text()
        if not text.endswith("\ufffd"):
            self._write(text)

    def close(self) -> None:
        """Whatever is left, and the end of the line."""
        self._write(self._text() + "\n")

    def _text(self) -> str:
        text: str = self._tokenizer.decode(self._tokens, skip_special_tokens=True)
        return text

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        print(text[self._written :].encode(encoding, errors="replace").decode(encoding), end="", flush=True)
        self._written = len(text)


def _heading(checkpoint: "Checkpoint", attention: "Attention", config: Composed, loaded_s: float) -> str:
    """What is loaded, what its layers remember, who reads it."""
    from experiments.measuring.checkpoint.conversion import name_of

    dtype, choices = config.values["dtype"], config.choices
    weights = f"{checkpoint.note} to {dtype}" if checkpoint.note else f"weights in {dtype}"
    layers = f"{len(checkpoint.specs)} layers of {name_of(attention.spec)}"
    how = f"{choices['backend']} on {choices['storage']}"
    return f"{checkpoint.source.name}: {layers}, {how}; {weights}, loaded in {loaded_s:.1f} s"


def _told(said: "Generated", run: "Run", prompt: int, ended: bool) -> list[str]:
    """Lines about time and bytes."""
    from experiments.measuring.checkpoint.generate import QUANTILES

    end = ", where the model ends its text" if ended else ""
    lines = [
        f"text         {prompt} tokens and {len(said.tokens)} new ones{end}",
        f"first token  {said.first_s * 1e3:,.0f} ms",
    ]
    if said.tokens_per_s is not None:
        gaps = ", ".join(f"p{percent} {said.gap_ms(percent):.1f}" for percent in QUANTILES)
        lines.append(f"then         {said.tokens_per_s:.1f} tokens per second; ms between tokens: {gaps}")
    used, predicted = run.bytes_in_use, run.bytes_predicted
    same = "as its layout predicts" if used == predicted else f"where its layout predicts {predicted:,} B"
    room = f"{run.bytes_allocated:,} B allocated"
    return [*lines, f"cache        {used:,} B in use for {run.tokens} tokens, {same}; {room}"]


if __name__ == "__main__":
    main()
