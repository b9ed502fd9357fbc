"""What is known of a layer's inputs: their second moment, from calibration activations or assumed white."""

from dataclasses import dataclass
from typing import Self

import torch
from jaxtyping import Float
from torch import Tensor

from variants.convert.rows import extended


@dataclass(frozen=True)
class Moments:
    """``second`` is E[x x^T] of inputs with a 1 appended, so that biases are columns of weights; float64."""

    second: Float[Tensor, "D1 D1"]

    @classmethod
    def assumed(cls, hidden_size: int, device: torch.device) -> Self:
        """Zero mean and unit covariance: what weights alone decide."""
        return cls(torch.eye(hidden_size + 1, dtype=torch.float64, device=device))

    @classmethod
    def of(cls, x: Float[Tensor, "B T D"]) -> Self:
        """Those of activations; ValueError where they are not finite."""
        if not bool(x.isfinite().all()):
            raise ValueError("calibration activations must be finite; got NaN or infinity")
        rows = extended(x.double().flatten(0, 1))
        return cls(rows.T @ rows / len(rows))

    @property
    def mean(self) -> Float[Tensor, "D1"]:
        """E[x]; its last entry is 1."""
        return self.second[-1]

    @property
    def centred(self) -> Float[Tensor, "D1 D1"]:
        """Covariance; zero in the appended row and column."""
        return self.second - torch.outer(self.mean, self.mean)
