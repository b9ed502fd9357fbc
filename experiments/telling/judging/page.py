"""The report of a quality run: what was scored on what, a table, a figure, what it does not say."""

from collections.abc import Sequence
from pathlib import Path

from experiments.scored import Scored
from experiments.telling.figures.canvas import Drawn, look
from experiments.telling.folder import FIGURES, PAGE, report_folder
from experiments.telling.judging.figure import draw
from experiments.telling.judging.losses import draw as draw_losses
from experiments.telling.judging.losses import read_losses
from experiments.telling.judging.numbers import Judged, comparable, front, judged, original
from experiments.telling.judging.table import scores
from experiments.telling.markdown import alt_text, code_block, escape, table
from experiments.telling.words import number

STEM = "quality"


def tell(rows: Sequence[Scored], runs: Path, out: Path, command: str) -> tuple[Path, list[Path]]:
    """Write the report's folder; the page and its figures. Raises ValueError where ``out`` is something else.

    ``runs``: the folder that the rows are from, which has their loss curves.
    """
    mine = comparable(rows)
    base, found = original(mine), judged(mine)
    with report_folder(out) as folder, look():
        losses = draw_losses(found, base, read_losses(runs, mine), folder / FIGURES)
        drawn = [draw(found, base, folder / FIGURES, STEM), *([losses] if losses else [])]
        text = render(found, base, drawn, command, len(rows) - len(mine))
        # a path that the locale could not decode holds surrogates, which UTF-8 has no bytes for
        (folder / PAGE).write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return out / PAGE, [out / FIGURES / f"{it.stem}.png" for it in drawn]


def render(found: Sequence[Judged], base: Scored, drawn: Sequence[Drawn], command: str, others: int = 0) -> str:
    """The page's text; ``others`` are rows that it does not show."""
    lines = scores(found, base)
    commands = dict.fromkeys(row.command for it in found for row in it.rows)
    parts = [
        f"# What each attention costs {escape(base.checkpoint)} in quality",
        escape(scored_on(base)),
        table(lines.header, lines.rows),
        escape(best(found)),
        *(part for it in drawn for part in _shown(it)),
        "## How",
        "\n".join(f"* {escape(said)}" for said in how(found, base, others)),
        "## Reproduce",
        *map(code_block, (*commands, command)),
    ]
    return "\n\n".join(parts) + "\n"


def _shown(drawn: Drawn) -> tuple[str, str]:
    """The figure, and its small print as text."""
    remarks = "\n".join(f"* {escape(remark)}" for remark in drawn.remarks)
    return f"![{alt_text(drawn.alt)}]({FIGURES}/{drawn.stem}.png)", remarks


def best(found: Sequence[Judged]) -> str:
    """Who is on the front, in a sentence."""
    names = ", ".join(it.label for it in front(found))
    return f"On the Pareto front of bytes and perplexity, as last trained: {names}."


def scored_on(base: Scored) -> str:
    """The model, the text and the original's own score."""
    note = f" ({base.note})" if base.note else ""
    return (
        f"{base.checkpoint}{note}, {base.layers} layers, {base.dtype}: {base.tokens:,} tokens of {base.corpus} that "
        f"nothing was fitted to or trained on, in {len(base.nll)} windows of {base.window} tokens, each on its own. "
        f"The original's perplexity is {number(base.perplexity)}. Bytes are one layer's; scores are of models without "
        "a cache, which say what the same models say with one."
    )


def how(found: Sequence[Judged], base: Scored, others: int = 0) -> list[str]:
    """What was done to get the numbers, and what does not follow from them."""
    trained = [it.after for it in found if it.after]
    fitted = max((row.calibration_tokens for it in found for row in it.rows), default=0)
    said = [
        "KL: of the original's distribution of the next token to the variant's, mean over tokens.",
        "The interval is Student's t over windows, of the paired difference to the original's.",
        f"Conversions were fitted to {fitted:,} tokens of other topics of the same text; the error of a layer is that "
        "of its outputs there, relative, mean over layers.",
    ]
    if trained:
        row = trained[0]
        said.append(
            f"Distilled: {row.steps} steps per layer on {row.training_tokens:,} tokens of further topics, "
            f"learning rate {row.learning_rate:g} falling to zero, seed {row.seed}: each layer alone learns to give "
            "what the original's gives on the original's hidden states. The loss is the squared error over squared "
            "outputs; curves by step and layer are in losses/. This is no uptraining of the whole model: training that "
            "is not layer by layer, or longer, can regain more."
        )
    if others:
        said.append(f"{others} rows of the folder are not shown: of other text, another checkpoint or fewer steps.")
    seconds = sum(row.seconds for it in found for row in it.rows)
    said.append(
        f"One model of this size on one text: no ranking for others follows. {seconds / 60:.1f} minutes on "
        f"{base.device}, "
        f"{base.threads} threads; {base.versions}; commit {base.commit}."
    )
    return said
