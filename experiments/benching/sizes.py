"""The layer that every variant is put into, and how long its caches are."""

from dataclasses import dataclass
from typing import Any

from variants.contract.model import ModelShape
from variants.contract.plugin import find
from variants.protocols import Spec

KINDS: dict[str, tuple[str, dict[str, Any]]] = {  # kind of attention and what its spec is told
    "mha": ("grouped", {"num_kv_heads": "num_attention_heads"}),
    "gqa8": ("grouped", {"num_kv_heads": 8}),
    "mqa": ("grouped", {"num_kv_heads": 1}),
    "gta8": ("tied", {"num_kv_heads": 8}),
    "mla": ("latent", {}),
    "gla2": ("latent", {"num_latent_heads": 2}),
}
VARIANTS = ("mha", "gqa8", "mqa", "mla")  # those with a target on a CPU


@dataclass(frozen=True)
class Sizes:
    """One layer and the cached tokens of each section; MLA takes DeepSeek's ratios (latent 4 d, rope d / 2)."""

    hidden_size: int = 4096
    num_q_heads: int = 32
    head_dim: int = 128
    context: int = 16 * 1024  # attend
    growing: tuple[int, ...] = (8 * 1024, 16 * 1024, 32 * 1024, 64 * 1024)
    used: int = 16 * 1024  # of a pool of pages
    steps: tuple[int, ...] = (4 * 1024, 16 * 1024)
    rounds: int = 6  # half of them backwards
    replicas: int = 16  # most copies of a cache to go round over

    @property
    def model(self) -> ModelShape:
        """The layer as a model's shape."""
        return ModelShape(
            name="bench",
            source="issue: speed to reach",
            hidden_size=self.hidden_size,
            num_hidden_layers=1,
            num_attention_heads=self.num_q_heads,
            head_dim=self.head_dim,
        )

    def spec(self, variant: str) -> Spec:
        """A variant in the layer's place."""
        kind, numbers = KINDS[variant]
        spec: Spec = find("attention", kind).from_model(self.model, **numbers)
        return spec


SMOKE = Sizes(
    hidden_size=256,
    num_q_heads=16,
    head_dim=16,
    context=256,
    growing=(128, 256, 512),
    used=256,
    steps=(64, 128),
    rounds=2,
    replicas=2,
)  # to see that everything runs; its numbers mean nothing
