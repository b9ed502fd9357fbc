"""The page on trainings, as Markdown."""

from collections.abc import Sequence

from experiments.telling.figures.canvas import Drawn
from experiments.telling.folder import FIGURES
from experiments.telling.learning.over_seeds import Interval
from experiments.telling.learning.results import ENOUGH, Result, Standing, obstacle, score
from experiments.telling.markdown import alt_text, code_block, escape, table
from experiments.telling.words import count, number, percent

SCORES = {"recall": "recall accuracy", "text": "bits per byte"}
LIMITS = (
    "Tiny decoders, trained briefly: what such a run shows is how fast and how well each variant learns here. It says "
    "nothing of the models that these variants were made for, and no latency is in it.",
    "One learning rate and schedule for all variants; none was tuned for any of them.",
    "Recall is learned suddenly, and some come to it later than others, when the learning rate is falling already: "
    "what they could do, more steps would show (learning.recall.steps).",
    "Intervals are over seeds alone, Student's t at 95 %, and not corrected for the number of comparisons. A score "
    "near its bound has no symmetric interval.",
    "Held-out data are the same for all variants and seeds.",
)


def page(
    settings: Sequence[Sequence[Result]], figures: Sequence[Sequence[Drawn]], command: str, warnings: Sequence[str]
) -> str:
    """All of it; ``settings`` are tasks by decoder, ``figures`` those of each."""
    parts = ["# Trained from scratch, parameters matched"]
    parts += [f"* warning: {escape(warning)}" for warning in warnings]
    for number_, (alike, drawn) in enumerate(zip(settings, figures, strict=True), start=1):
        parts.append(f"## Setting {number_}" if len(settings) > 1 else "## Outcome")
        parts += [escape(line) for line in verdict(alike)]
        parts.append(_decoder(alike))
        for result in alike:
            parts += _section(result)
        parts += [f"![{alt_text(it.alt)}]({FIGURES}/{it.stem}.png)" for it in drawn]
    parts += ["## What this can tell", "\n".join(f"* {limit}" for limit in LIMITS)]
    parts += ["## Again", "The trainings:", *_commands(settings), "This page:", code_block(command)]
    return "\n\n".join(parts) + "\n"


def verdict(alike: Sequence[Result]) -> list[str]:
    """A sentence per task, or the one that says why there is no ranking."""
    reason = obstacle(alike)
    if reason is not None:
        return [f"No ranking: {reason}."]
    return [_ranking(result) for result in alike]


def _ranking(result: Result) -> str:
    base = result.any.baseline
    sides: dict[str, list[str]] = {"better than": [], "worse than": [], "not told apart from": []}
    for standing in result.standings:
        if standing.one.attention != base:
            sides[_side(standing)].append(standing.one.attention)
    said = [f"{', '.join(names)} {side} {base}" for side, names in sides.items() if names]
    return f"{result.task}, by {SCORES[result.task]}: {'; '.join(said) or f'{base} alone'}."


def _side(standing: Standing) -> str:
    """Of two that both solve a task, how the last few targets fell tells nothing."""
    versus = standing.versus
    if versus is None or not versus.excludes_zero or standing.solved:
        return "not told apart from"
    return "better than" if (versus.mean > 0) == (standing.one.task == "recall") else "worse than"


def _decoder(alike: Sequence[Result]) -> str:
    row = alike[0].any
    return escape(
        f"Decoder: {row.layers} layers, width {row.hidden_size}, {row.heads} query heads, SwiGLU, RMSNorm before each "
        f"part, tied embedding, {row.dtype}, on {row.device}. Every variant has the parameters of {row.baseline} "
        "within 1 %, by the width of its MLP, and per seed saw the same batches in the same order."
    )


def _section(result: Result) -> list[str]:
    row = result.any
    lines = [f"### {result.task}", escape(_asked(result))]
    if result.standings:
        lines.append(table(_header(result), [_cells(standing) for standing in result.standings]))
    lines += [escape(f"No outcome: {it.attention}, seed {it.seed}: {it.reason}.") for it in result.missing]
    if result.task == "recall" and row.chance is not None:
        lines.append(
            f"Chance: a decoder that sees each token by itself knows only which key is asked for, and can do no better "
            f"than guess among all values: {percent(row.chance)}. One that finds the values and not the right one: "
            f"{percent(1 / (row.pairs or 1))}. Variants that reach {ENOUGH:.0%} with every seed have solved the task: "
            "between them nothing is ranked."
        )
    return lines


def _asked(result: Result) -> str:
    row = result.any
    steps = f"{row.steps} steps of {row.batch}, learning rate {row.learning_rate:g} at its highest."
    if result.task == "text":
        return f"The next byte of the help topics that come with Python, {row.context} at a time: {steps}"
    return (
        f"Multi-query associative recall (Arora et al. 2023, arXiv 2312.04927): {row.pairs} keys with their values, "
        f"then every key once more among noise, {row.context} tokens of a vocabulary of {row.vocabulary}: {steps}"
    )


def _header(result: Result) -> list[str]:
    name = SCORES[result.task]
    other = "loss, nats per value" if result.task == "recall" else "accuracy of the next byte"
    versus = f"{name} minus {result.any.baseline}'s"
    seeds = f"seeds at {ENOUGH:.0%}" if result.task == "recall" else "seeds"
    return ["attention", "cache B/token/layer", "parameters", "MLP width", f"{name} [95 % CI]", other, versus, seeds]


def _cells(standing: Standing) -> list[str]:
    row = standing.one
    other = [it.loss if row.task == "recall" else it.accuracy for it in standing.rows]
    return [
        row.attention,
        count(row.cache_bytes),
        f"{row.parameters:,}",
        str(row.mlp_width),
        _interval(standing.score),
        _interval(Interval.of([value for value in other if value is not None])),
        _interval(standing.versus, sign=True) if row.attention != row.baseline else "-",
        _seeds(standing),
    ]


def _seeds(standing: Standing) -> str:
    """How many there are; of recall, which a seed learns or does not, how many did."""
    if standing.one.task != "recall":
        return str(standing.score.n)
    return f"{sum(score(row) >= ENOUGH for row in standing.rows)} of {standing.score.n}"


def _interval(it: Interval | None, sign: bool = False) -> str:
    """``0.993 [0.981, 1.005]``; what lies beyond a bound is left as Student's t has it."""
    if it is None:
        return "n/a"
    form = "+.4f" if sign else ".4f"
    if it.half is None:
        return f"{it.mean:{form}} [one seed]"
    return f"{it.mean:{form}} [{it.mean - it.half:{form}}, {it.mean + it.half:{form}}]"


def _commands(settings: Sequence[Sequence[Result]]) -> list[str]:
    rows = [row for alike in settings for it in alike for standing in it.standings for row in standing.rows]
    said = list(dict.fromkeys(row.command for row in rows))
    made = list(dict.fromkeys(f"commit {row.commit}, {row.versions}" for row in rows))
    hours = sum(row.seconds or 0.0 for row in rows) / 60
    return [
        *map(code_block, said),
        *map(escape, made),
        f"{len(rows)} trainings, {number(hours)} minutes added up.",
    ]
