"""The numbers behind a report's sliders: planning counts, the page's script adds up, and neither knows the other.

Plain data, from which the bytes and times of any point follow by the formulas in ``telling/html/arithmetic.js``, the
same that ``planning.predict`` and ``contract.cost`` have in Python.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.planning.capacity import PARAMETERS, preset_weight_bytes
from experiments.planning.configs import profiles, yamls
from experiments.planning.predict import GBPS, MERGE_TOKENS, TFLOPS, TILE_ROWS
from experiments.planning.profile import DeviceProfile, kernel_of
from variants.contract.cost import Applied, keeps_read
from variants.contract.dtype import Dtype
from variants.contract.keep import All, Keep, Window
from variants.contract.layout import CacheLayout
from variants.contract.model import ModelShape
from variants.contract.plugin import find

if TYPE_CHECKING:
    from variants.protocols import Spec  # with torch, which a report is written without

TPS = (1, 2, 4, 8, 16)
DTYPE = Dtype.BF16  # of weights and activations
KV_DTYPES = (Dtype.BF16, Dtype.FP8_E4M3, Dtype.INT8)
Planner = Callable[[Sequence[str]], "dict[str, Any] | None"]


def planner(conf: Path) -> Planner:
    """Tells what the sliders need of the models named in records; None where ``conf/model`` has none of them."""

    def planned(names: Sequence[str]) -> dict[str, Any] | None:
        wanted = {name.casefold() for name in names}
        models = [
            _model(stem, raw, conf) for stem, raw in yamls(conf / "model").items() if raw["name"].casefold() in wanted
        ]
        return {"models": models, **_constants(), "devices": _devices(conf)} if models else None

    return planned


def _constants() -> dict[str, Any]:
    return {
        "tps": TPS,
        "kv_dtypes": [dtype.value for dtype in KV_DTYPES],
        "dtype": DTYPE.value,
        "merge_tokens": MERGE_TOKENS,
        "tile_rows": TILE_ROWS,
        "gbps": GBPS,
        "tflops": TFLOPS,
    }


def _model(stem: str, raw: Mapping[str, Any], conf: Path) -> dict[str, Any]:
    """``weight_bytes``: of the whole model, null where its parameters are not known."""
    shape = ModelShape.parse(raw)
    return {
        "name": shape.name,
        "layers": shape.num_hidden_layers,
        "weight_bytes": preset_weight_bytes(stem, DTYPE) if stem in PARAMETERS else None,
        "variants": [_variant(name, options, shape) for name, options in yamls(conf / "attention").items()],
    }


def _variant(name: str, options: Mapping[str, Any], shape: ModelShape) -> dict[str, Any]:
    given = dict(options)
    kind = find("attention", given.pop("kind"))

    def rank(tp: int) -> dict[str, Any]:
        return _rank(kind.from_model(shape, **given).shard(tp))

    return {"name": name, "ranks": {str(tp): _or_reason(partial(rank, tp)) for tp in TPS}}


def _rank(spec: "Spec") -> dict[str, Any]:
    """One layer on one rank; elements and bytes that do not depend on batch and context.

    ``width``: query heads times (d_qk + d_v). ``rows``: query heads per cached head. ``launches``: products of a step.
    ``cached_weights``: of products that run once per cached token. ``streams``: by cache dtype.
    """
    geometry, matmuls = spec.geometry(), spec.matmuls()
    new = [m.weights for m in matmuls if m.applied is Applied.NEW]
    return {
        "kernel": kernel_of(geometry),
        "width": geometry.num_q_heads * (geometry.d_qk + geometry.d_v),
        "rows": geometry.group_size,
        "hidden": spec.hidden_size,
        "launches": len(new) + 1,  # and the append
        "weights": sum(new),
        "cached_weights": sum(m.weights for m in matmuls if m.applied is Applied.CACHED),
        "element_bytes": DTYPE.bytes(1),
        "streams": {dtype.value: _or_reason(partial(_streams, spec, dtype)) for dtype in KV_DTYPES},
    }


def _streams(spec: "Spec", dtype: Dtype) -> dict[str, Any]:
    """Bytes of an entry and the window of every stream; ``seen``: the least window among those that are read."""
    layout: CacheLayout = spec.layout(dtype)
    return {
        "kept": [[stream.entry_bytes, _window(stream.keep)] for stream in layout.streams],
        "seen": _least(map(_window, keeps_read(layout, spec.geometry()))),
    }


def _window(keep: Keep) -> int | None:
    if not isinstance(keep, All | Window):
        raise ValueError(f"sliders can show streams of all tokens or of a window; got {keep}")
    return keep.size if isinstance(keep, Window) else None


def _least(windows: Iterable[int | None]) -> int | None:
    return min((size for size in windows if size is not None), default=None)


def _devices(conf: Path) -> list[dict[str, Any]]:
    known = profiles(conf / "device").items()
    return [_device(stem, profile) for stem, profile in known if DTYPE in profile.matmul_tflops]


def _device(stem: str, profile: DeviceProfile) -> dict[str, Any]:
    return {
        "id": stem,
        "name": profile.name,
        "memory_bytes": profile.memory_bytes.value,
        "read_gbps": profile.read_gbps.value,
        "peak_tflops": profile.peak_tflops(DTYPE),
        "matmul_share": profile.matmul_share.value,
        "launch_us": profile.launch_us.value,
        "kernels": {
            name: {
                "fixed_us": kernel.fixed_us,
                "tile_us": kernel.tile_us,
                "merge_us": kernel.merge_us,
                "read_gbps": kernel.read_gbps,
                "matmul_share": kernel.matmul_share,
                "limited": kernel.limited,
            }
            for name, kernel in profile.kernels.items()
        },
    }


def _or_reason(make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a variant has at a tp or a dtype, or why it cannot be there."""
    try:
        return make()
    except ValueError as error:
        return {"reason": str(error)}
