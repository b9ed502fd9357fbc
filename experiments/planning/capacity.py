"""What fits: how many sequences and tokens beside the weights, and how another variant would change that.

Everything is counted per device, because that is what overflows: a latent is whole on every rank, a grouped cache is
split while there are heads to split.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from experiments.planning import four
from experiments.planning.formats import Format
from experiments.planning.model_cache import LayerCache, ModelCache
from variants.attention.grouped.spec import GroupedSpec
from variants.attention.latent.spec import LatentSpec
from variants.attention.tied.spec import TiedSpec
from variants.contract.checks import check_count
from variants.contract.dtype import Dtype
from variants.contract.layout import Source
from variants.contract.model import ModelShape

LONGEST = 2**40  # tokens; beyond this a length is called unbounded

# Parameters of the presets in conf/model, embeddings included; DeepSeek-V3 without the layer that predicts further
# tokens. tests/golden/test_weights.py sums each over the model's own shapes and holds it to what its authors publish.
PARAMETERS = {
    "smollm2_135m": 134_515_008,
    "llama2_7b": 6_738_415_616,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_1_405b": 405_853_388_800,
    "qwen2_5_72b": 72_706_203_648,
    "deepseek_v2_lite": 15_706_484_224,
    "deepseek_v3": 671_026_419_200,
}


def preset_weight_bytes(name: str, dtype: Dtype = Dtype.BF16) -> int:
    """Bytes of a preset's weights; KeyError if it is none of ours."""
    return dtype.bytes(PARAMETERS[name])


@dataclass(frozen=True)
class Devices:
    """``count`` devices of ``memory`` bytes in groups of ``tp``, each group one copy of the model.

    ``reserve`` bytes of each device are kept for activations, workspace and the runtime.
    Raises ValueError if the devices make no whole groups.
    """

    memory: int
    count: int = 1
    tp: int = 1
    reserve: int = 0

    def __post_init__(self) -> None:
        for name in ("memory", "count", "tp"):
            check_count(name, getattr(self, name))
        if self.count % self.tp:
            raise ValueError(f"tp must divide the number of devices; got count={self.count}, tp={self.tp}")
        if not 0 <= self.reserve < self.memory:
            raise ValueError(f"reserve must be from 0 to below memory={self.memory}; got {self.reserve}")

    def room(self, weight_bytes: int) -> int:
        """Bytes of one device that weights and reserve leave; ValueError if the weights alone do not fit."""
        own = -(-weight_bytes // self.tp)
        left = self.memory - self.reserve - own
        if left < 0:
            raise ValueError(
                f"weights must fit beside the reserve; got {own} B of weights per device and {self.reserve} B reserved "
                f"of {self.memory} B: use a larger tp"
            )
        return left


@dataclass(frozen=True)
class Capacity:
    """What fits on all devices together: sequences of the given lengths, and the tokens they cache.

    ``bytes_per_sequence`` is one device's share of a sequence of mean size, constant state included.
    """

    sequences: int
    tokens: int
    bytes_per_sequence: Fraction
    tp_mode: str


def capacity(
    model: ModelCache, kv: Format, devices: Devices, weight_bytes: int, contexts: Mapping[int, Fraction | int]
) -> Capacity:
    """How many sequences fit if lengths come in the given shares, ``{tokens: share}``.

    Raises ValueError where weights do not fit, shares are not positive, or heads cannot be split.
    """
    mean, mode = _mean(model, kv, devices.tp, contexts)
    if not mean:
        raise ValueError(f"{model.name} caches nothing: any number of sequences fits")
    shares = sum(contexts.values())
    length = Fraction(sum(share * tokens for tokens, share in contexts.items())) / shares
    groups, each = devices.count // devices.tp, int(devices.room(weight_bytes) / mean)
    return Capacity(groups * each, int(groups * each * length), mean, mode)


def longest_context(model: ModelCache, kv: Format, budget: int) -> int | None:
    """Most tokens of one sequence whose cache fits in ``budget`` bytes; None if no length fills it.

    The curve bends where windows fill, so it is searched, not divided.
    """
    room = budget - four.state_bytes(model)
    if four.exact(model, kv, LONGEST) <= room:
        return None
    low, high = 0, LONGEST  # exact(low) fits, exact(high) does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if four.exact(model, kv, middle) <= room else (low, middle)
    return low


def batch_beyond_weights(
    model: ModelCache, kv: Format, weight_bytes: int, contexts: Mapping[int, Fraction | int], tp: int = 1
) -> int:
    """The smallest batch whose caches weigh more than the model; what every one of ``tp`` ranks keeps counts on each.

    Raises ValueError where shares are not positive, nothing is cached, or heads cannot be split.
    """
    mean, _ = _mean(model, kv, tp, contexts)
    if not mean:
        raise ValueError(f"{model.name} caches nothing at {', '.join(map(str, contexts))} tokens")
    return int(weight_bytes / (tp * mean)) + 1


def alternatives(model: ModelCache) -> dict[str, ModelCache]:
    """The same model with other attention in the place of its own, as far as the cache goes.

    Windows stay where they are, and so do states. Raises ValueError if its attention layers are not alike.
    """
    heads, width = _plain_shape(model)
    # only layouts are asked of the specs, and the model's width is in none of them
    shape = ModelShape(model.name, "planning", heads * width, len(model.layers), heads, head_dim=width)
    specs: dict[str, GroupedSpec | TiedSpec | LatentSpec] = {
        "MHA": GroupedSpec.from_model(shape, "num_attention_heads"),
        "GQA-8": GroupedSpec.from_model(shape, 8) if heads % 8 == 0 else GroupedSpec.from_model(shape),
        "MQA": GroupedSpec.from_model(shape, 1),
        "GTA": TiedSpec.from_model(shape),
        "GLA-2": LatentSpec.from_model(shape, num_latent_heads=2),
        f"MLA {4 * width}+{width // 2}": LatentSpec.from_model(shape),
    }
    return {name: _with(model, name, spec) for name, spec in specs.items()}


def _mean(model: ModelCache, kv: Format, tp: int, contexts: Mapping[int, Fraction | int]) -> tuple[Fraction, str]:
    """One device's bytes of a sequence of mean size, constant state included, and how heads come there."""
    if not contexts or min(contexts.values()) <= 0:
        raise ValueError(f"contexts must map tokens to shares > 0; got {dict(contexts)}")
    ranks = {tokens: four.per_device(model, kv, tokens, tp) for tokens in contexts}
    total = Fraction(sum(share * (ranks[t].bytes + ranks[t].state_bytes) for t, share in contexts.items()))
    return total / sum(contexts.values()), next(iter(ranks.values())).mode


def _plain_shape(model: ModelCache) -> tuple[int, int]:
    """Query heads and head width, one pair for all attention layers."""
    layers = [layer for layer, _ in model.groups if layer.of(Source.TEXT) and layer.num_q_heads]
    shapes = {(layer.num_q_heads or 0, s.width) for layer in layers for s in layer.streams if s.name == "key"}
    if not shapes or any(s.name == "latent" for layer in layers for s in layer.streams):
        raise ValueError(f"other attention can take the place of keys and values per head only; got {model.kind}")
    if len(shapes) > 1:
        every = ", ".join(f"{heads} x {width}" for heads, width in sorted(shapes))
        raise ValueError(
            f"other attention needs layers of one shape to take the place of; got heads x head_dim {every}"
        )
    return shapes.pop()


def _with(model: ModelCache, name: str, spec: GroupedSpec | TiedSpec | LatentSpec) -> ModelCache:
    layers = tuple(_swap(layer, spec) for layer in model.layers)
    return replace(model, name=f"{model.name} with {name}", layers=layers)


def _swap(layer: LayerCache, spec: GroupedSpec | TiedSpec | LatentSpec) -> LayerCache:
    own = layer.of(Source.TEXT)
    if not own:
        return layer
    made = tuple(replace(stream, keep=own[0].keep) for stream in spec.layout(Dtype.BF16).streams)
    return LayerCache(layer.role, made + layer.of(Source.STATE), layer.num_q_heads, None)
