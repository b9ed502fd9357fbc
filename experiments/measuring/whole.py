"""A prompt's prefill and a step without a cache: planned, counted before anything is allocated, and proved."""

import math

import torch
from torch import Tensor

from experiments.measuring.prepare import OTHER_NOISE, Replica, error_budget
from experiments.measuring.series import Series
from experiments.measuring.textbook import Textbook
from variants.contract.codes import CODES
from variants.contract.cost import Point
from variants.contract.dtype import Dtype
from variants.contract.geometry import Span
from variants.contract.scopes import uncached
from variants.noise import noise_
from variants.prefill import chunk_rows, plan_prefill, plan_recompute, prefill_reasons, room_for
from variants.protocols import Spec
from variants.storage.contiguous import Contiguous
from variants.view import TORCH_DTYPES

PROVED = 256  # first tokens held to the reference: their outputs need no later ones, whatever the context
CODING = 2  # times the error of attended values that a cache of codes may add to a proof
SCORES = 4  # masked, shifted, exponentiated and divided: what a kernel that is not fused makes of them
COPIES = 2  # of queries and of keys and values: as projected, and rotated or laid end to end


def whole_reasons(scope: str, series: Series, point: Point, device: str) -> list[str]:
    """Why the series' backend cannot do it; empty = it can. No tensors."""
    spec, kv_dtype = _form(scope, series.spec), _kv_dtype(scope, series)
    layout, rows = spec.layout(kv_dtype), chunk_rows(spec, point.batch, point.context)
    last = point.context % rows or rows
    return prefill_reasons(series.backend, spec, layout, series.policy, device, point.dtype, {rows, last})


def workspace_bytes(scope: str, series: Series, point: Point) -> dict[str, int]:
    """Bytes that a scope takes beside weights and cache, part by part; counted, not allocated."""
    spec, rows = _form(scope, series.spec), point.batch * point.context
    read = spec.unpacked() or spec
    geometry, layout, hidden = read.geometry(), read.layout(point.dtype), spec.hidden_size
    made = COPIES * (rows * geometry.num_q_heads * geometry.d_qk) + rows * geometry.num_q_heads * geometry.d_v
    scores = 4 * point.batch * geometry.num_q_heads * chunk_rows(spec, point.batch, point.context) * point.context
    held = Contiguous() if spec.unpacked() else series.policy
    keeps_nothing = scope == "recompute" or spec.unpacked() is not None
    parts = {
        "x and y of the prompt": point.dtype.bytes(2 * rows * hidden),
        "its queries and attended values": point.dtype.bytes(made),
        "its new entries": COPIES * int(rows * layout.bytes_per_token),
        "its keys and values": held.allocated_bytes(layout, point.batch, point.context) if keeps_nothing else 0,
        "keys and values in float32": 4 * rows * geometry.num_kv_heads * (geometry.d_qk + geometry.d_v),
        "scores of a chunk": SCORES * scores,
        "the reference in float32": _reference_bytes(spec, point),
    }
    return {name: size for name, size in parts.items() if size}


class Wholes:
    """The planned passes of a point's replicas, which share the prompt and the workspace: they never run at once."""

    def __init__(self, scope: str, series: Series, point: Point, replicas: list[Replica]) -> None:
        first = replicas[0].planned
        device, dtype = first.view.lengths.device, TORCH_DTYPES[point.dtype]
        prompt = torch.empty(point.batch, point.context, series.spec.hidden_size, dtype=dtype, device=device)
        noise_(prompt.flatten(0, 1), series.workload.seed + OTHER_NOISE)
        self.x = prompt
        self.series, self.point, self.scope, self.step = series, point, scope, first
        if scope == "prefill":
            room = room_for(first.attention, point.batch, point.context, device)
            self.passes = [
                plan_prefill(r.planned.attention, r.planned.cache, series.backend, point.context, room)
                for r in replicas
            ]
        else:
            layout = uncached(series.spec).layout(point.dtype)
            thrown = series.policy.allocate(layout, point.batch, point.context, device)
            self.passes = [plan_recompute(r.planned.attention, thrown, series.backend, point.context) for r in replicas]

    def error(self, y: Tensor, textbook: Textbook) -> float:
        """How far outputs ``y`` [B, T, D] of the first pass are from the reference and from the cached step.

        Relative norms, the largest of: the first tokens' outputs against the textbook layer in float32; the last rows'
        against a decode step over the cache; after a prefill, what the cache holds of its oldest tokens. Infinite where
        something is not finite. ``textbook``: what is known of these weights and this prompt.
        """
        if y.shape != self.x.shape:
            return math.inf
        errors = [relative(y[:1, :PROVED], textbook.outputs(self.step.attention, self.x[:1, :PROVED]))]
        if self.scope == "prefill":
            errors.append(self._content_error(textbook))
        else:
            self._fill()
        new = slice(self.point.context - self.point.queries, None)
        errors.append(relative(y[:, new], self.step(self.x[:, new], self.passes[0].position[:, new])))
        return max(error if math.isfinite(error) else math.inf for error in errors)

    def budget(self, kv_error: float | None) -> float:
        """What rounding explains, and what codes are known to cost where the cache holds them."""
        dtypes = [self.point.dtype, self.series.workload.kv_dtype]
        rounding = max(error_budget(TORCH_DTYPES[dtype]) for dtype in dtypes if dtype not in CODES)
        return rounding + CODING * (kv_error or 0.0)

    def _content_error(self, textbook: Textbook) -> float:
        """The first sequence's oldest tokens still held, against entries made of the same rows in float32."""
        view = self.step.cache.view.sequence(0)
        position = view.positions(min(self.point.context, PROVED)).long()
        exact = textbook.entries(self.step.attention, self.x[:1, position[0]], position)
        return max(
            relative(view.read(Span(name, 0, rows.shape[-1]), position.shape[1], rows.dtype).transpose(1, 2), rows)
            for name, rows in exact.items()
        )

    def _fill(self) -> None:
        """Bring the prompt into the first replica's cache, for the step to stand on."""
        position, cache = self.passes[0].position, self.step.cache
        most = min(cache.most_at_once, self.point.context)
        entries = self.step.attention.entry(self.x, position)
        for start in range(0, self.point.context, most):
            rows = slice(start, start + most)
            cache.write({name: entry[:, rows] for name, entry in entries.items()}, position[:, rows])


def _form(scope: str, spec: Spec) -> Spec:
    return spec.prefilling() if scope == "prefill" else uncached(spec)


def _kv_dtype(scope: str, series: Series) -> Dtype:
    """What keys and values are cached in, or made in where nobody keeps them."""
    return series.workload.kv_dtype if scope == "prefill" else series.workload.dtype


def _reference_bytes(spec: Spec, point: Point) -> int:
    tokens = min(point.context, PROVED)
    return 4 * (spec.weight_elements + 3 * spec.geometry().num_q_heads * tokens**2)


def relative(got: Tensor, exact: Tensor) -> float:
    """Norm of the difference over the norm of ``exact``, worst sequence."""
    wide = torch.promote_types(exact.dtype, torch.float32)
    got, exact = got.to(wide).flatten(1), exact.to(wide).flatten(1)
    return float(((got - exact).norm(dim=1) / exact.norm(dim=1)).max())
