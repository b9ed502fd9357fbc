"""What the cache saves: a step with it against a step without it, over the prefix, and how both grow."""

from collections.abc import Sequence

from experiments.telling.figures.canvas import Drawn
from experiments.telling.frame import family_order
from experiments.telling.growth import Quadratic, fit_quadratic, fixed_cost
from experiments.telling.lines import AGREES, FIXED, SCOPES, Growth, Line, added_up, growths, lines
from experiments.telling.markdown import Markdown
from experiments.telling.section import Block, Section
from experiments.telling.setting import Setting
from experiments.telling.tables import Row, Table
from experiments.telling.words import NOTHING, latency, number, percent, times, tokens

HEADING = "What the cache saves"
UNSEEN = 1e-3  # of the shortest time: a term of a fit below it is none


def told(setting: Setting) -> bool:
    """Whether a step without a cache was timed at two prefixes at least."""
    return any(line.scope == "recompute" for line in lines(setting))


def saving(setting: Setting, n: int, figures: Sequence[Drawn]) -> Section:
    """The section of a setting that has such steps; ``figures`` are of single steps, and of steps added up."""
    found = lines(setting)
    grown = [growth for line in found for growth in growths(line)]
    per_step, added = figures
    blocks = [
        Block(_ABOUT, _times_table(found), _temperature(found), per_step),
        Block(_ADDED, None, (), added),
        Block(_FITTED, _fits_table(found)),
        Block(_GROWS, _growth_table(grown), _verdicts(grown)) if grown else Block("No growth: ceilings are unknown."),
    ]
    return Section(HEADING, n, blocks)


_ABOUT = Markdown(
    "`step` reads the cache; `recompute` has none and projects and attends all rows of the prefix again, since the "
    "layers above need every row; `prefill` fills the cache with the prefix. Times in us per layer. Outputs were "
    "checked before timing: first tokens against the textbook layer in float32, the last row against the cached step."
)
_ADDED = Markdown(
    "Added up, one step per generated token from the shortest prefix measured; between measured prefixes a step's time "
    "is interpolated on straight lines. Filling the cache with that first prefix, `prefill`, comes once on top."
)
_FITTED = (
    "Fitted by least squares of relative residuals: t = a + b T + c T^2, T tokens of prefix. "
    "A term below zero is noise."
)
_GROWS = Markdown(
    "Local growth exponents, measured / counted, between neighbouring prefixes: how the median grows, and how the "
    "larger of bytes / read ceiling and FLOPs / matmul ceiling does. Where FLOPs bind, a third number counts those "
    "that grow with T (projections) and with T^2 (attention) each at the rate the kernels reach: the shares of the "
    "matmul ceiling above, fitted to the line together with the fixed cost, which is what follows neither: launches, "
    "and reads that no arithmetic hides."
)


def _times_table(found: Sequence[Line]) -> Table:
    header = ("variant", "prefix", "step", "recompute", "the cache saves", "prefill", "steps so far, s", "without, s")
    by = {(line.label, line.scope): line for line in found}
    labels = sorted({line.label for line in found}, key=family_order)
    rows = []
    for label in labels:
        scopes = [by.get((label, scope)) for scope in SCOPES]
        at = [{} if line is None else dict(zip(line.contexts, line.rows, strict=True)) for line in scopes]
        sums = [{} if line is None else dict(zip(line.contexts, added_up(line), strict=True)) for line in scopes[:2]]
        for context in sorted({c for rows_ in at for c in rows_}):
            step, again, fill = (rows_.get(context) for rows_ in at)
            saved = times(again["latency_us_p50"] / step["latency_us_p50"]) if step and again else NOTHING
            seconds = (number(s[context]) if context in s else NOTHING for s in sums)
            rows.append((label, tokens(context), _said(step), _said(again), saved, _said(fill), *seconds))
    return Table(header, tuple(rows))


def _said(row: Row | None) -> str:
    return NOTHING if row is None else latency(row)


def _temperature(found: Sequence[Line]) -> list[str]:
    said = sorted({str(row["temperature"]) for line in found for row in line.rows})
    return [f"Rows are {' and '.join(said)}; a variant's prefixes share one temperature."]


def _fits_table(found: Sequence[Line]) -> Table:
    header = (
        *("variant", "scope", "a, us", "b, us/token", "c, us/token^2", "largest residual"),
        *("fixed cost, us", "projections reach", "attention reaches"),
    )
    rows = []
    for line in found:
        fit = fit_quadratic(line.contexts, line.us)
        said = (NOTHING,) * 4 if fit is None else (*_terms(fit, line), percent(fit.worst))
        rows.append((line.label, line.scope, *said, *_rates(line)))
    return Table(header, tuple(rows))


def _rates(line: Line) -> tuple[str, str, str]:
    """The fixed cost, and what share of the matmul ceiling both kinds of FLOPs run at, where that can be told."""
    reached, floors = line.reached, line.floors
    if reached is not None:
        return number(reached.fixed), percent(1 / reached.linear), percent(1 / reached.square)
    return number(fixed_cost(line.us, floors)) if floors else NOTHING, NOTHING, NOTHING


def _terms(fit: Quadratic, line: Line) -> list[str]:
    """The coefficients; 0 where the term is too small to be seen in any of the times."""
    longest, unseen = line.contexts[-1], UNSEEN * min(line.us)
    sizes = ((fit.a, 1), (fit.b, longest), (fit.c, longest**2))
    return [_signed(value) if abs(value * power) > unseen else "0" for value, power in sizes]


def _signed(value: float) -> str:
    return f"-{number(-value)}" if value < 0 else number(value)


def _growth_table(grown: Sequence[Growth]) -> Table:
    spans = sorted({(g.start, g.stop) for g in grown})
    header = ("variant", "scope", *(f"{tokens(start)} to {tokens(stop)}" for start, stop in spans))
    by: dict[tuple[str, str], dict[tuple[int, int], Growth]] = {}
    for g in grown:
        by.setdefault((g.line.label, g.line.scope), {})[g.start, g.stop] = g
    rows = ((*place, *(str(at.get(span, NOTHING)) for span in spans)) for place, at in by.items())
    return Table(header, tuple(rows))


def _verdicts(grown: Sequence[Growth]) -> list[str]:
    """How many agree, and every one that does not by name."""
    judged = [g for g in grown if not g.overhead_bound]
    agreeing = [g for g in judged if g.agrees]
    at_rates = ", FLOPs at the rates reached" if any(g.reached is not None for g in judged) else ""
    said = [f"{len(agreeing)} of {len(judged)} intervals that no fixed cost dominates agree within {AGREES}{at_rates}."]
    bound = [g for g in grown if g.overhead_bound]
    if bound:
        said.append(f"* {len(bound)} intervals: more than {percent(FIXED)} of the time at their start is a fixed cost.")
    off = ", ".join(
        f"{g.line.label} {g.line.scope} {tokens(g.start)} to {tokens(g.stop)}" for g in judged if not g.agrees
    )
    return [*said, f"! Grow otherwise than counted: {off}."] if off else said
