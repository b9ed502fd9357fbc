"""A decoder as small as can be: the attention under study, and around it what today's decoders have."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from experiments.measuring.learning.lesson import Shape
from variants.protocols import Spec

EPS = 1e-6


class Mlp(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv 2002.05202)."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, width, bias=False)
        self.up_proj = nn.Linear(hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, hidden_size, bias=False)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Each token by itself."""
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class Layer(nn.Module):
    """Attention, then MLP, each on normed hidden states and added to them.

    Without ``spec`` no token sees another: what that learns is what attention was not needed for.
    """

    def __init__(self, hidden_size: int, spec: Spec | None, width: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden_size, EPS)
        self.mlp_norm = nn.RMSNorm(hidden_size, EPS)
        self.attention = spec.build() if spec else None
        self.mlp = Mlp(hidden_size, width)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """``reference`` is the layer over whole sequences to which the tests hold its cached path."""
        if self.attention is not None:
            x = x + self.attention.reference(self.attention_norm(x))
        y: Tensor = x + self.mlp(self.mlp_norm(x))
        return y


class Decoder(nn.Module):
    """Tied embedding, layers, a last norm. Weights follow from ``seed``."""

    def __init__(self, shape: Shape, spec: Spec | None, mlp_width: int, vocabulary: int, seed: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape.hidden_size, spec, mlp_width) for _ in range(shape.num_hidden_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, EPS)
        self._start(seed, shape.num_hidden_layers)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T vocabulary"]:
        """Logits of the token after each."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x) * x.shape[-1] ** -0.5, self.embedding.weight)

    @torch.no_grad()
    def _start(self, seed: int, layers: int) -> None:
        """The embedding normal with 1, other matrices with columns^-0.5, less by sqrt(2 layers) where states grow.

        Tied so, logits need a factor (T5's, Raffel et al. 2020: hidden_size^-0.5); a smaller embedding needs none, but
        its tokens are lost beside what layers add, and recall then takes many times the steps. The last factor is
        GPT-2's (Radford et al. 2019, section 2.3). Norms begin at one.
        """
        source = torch.Generator().manual_seed(seed)
        for name, weight in self.named_parameters():
            if weight.ndim < 2:
                continue
            spread = 1.0 if name.startswith("embedding") else weight.shape[1] ** -0.5
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                spread /= (2 * layers) ** 0.5
            weight.normal_(0, spread, generator=source)
