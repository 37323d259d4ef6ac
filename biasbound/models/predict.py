r"""The two baselines that are not a diffusion chain, as modules over any network.

`DirectPredictor` maps the condition to the next state in one call. `Refiner` is PDE-Refiner (Lippe et al. 2023): a
first prediction from a zero input, then K refinements, each of which adds noise of a falling level and removes it,

    û = net(0, x),    û ← (û + σ_k ε) − σ_k net(û + σ_k ε, x),    σ_k = σ_min^(k/K),  k = 1 … K.

Its noise is additive (the signal is not scaled down) and σ_k a standard deviation. The levels that inference visits
are the levels that training draws, all of them: both read `levels`.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from biasbound.core.denoise import Network
from biasbound.core.noise import Condition, State, draw

__all__ = ["DirectPredictor", "Refiner"]


def _checked_scale(residual: float | None) -> float | None:
    if residual is not None and not (residual > 0 and math.isfinite(residual)):
        raise ValueError(f"the residual scale must be positive and finite, got {residual}")
    return residual


class DirectPredictor(nn.Module):
    """ŷ = net(x), or x + r·net(x) with the residual scale r; C is the number of the state's channels."""

    def __init__(self, net: nn.Module, channels: int, residual: float | None = None) -> None:
        super().__init__()
        self.net, self.channels, self.residual = net, channels, _checked_scale(residual)

    def forward(self, x: Condition) -> State:
        out: Tensor = self.net(x)
        return out if self.residual is None else x[:, : self.channels] + self.residual * out

    @property
    def scale(self) -> float:
        """Errors are counted in units of the target."""
        return 1.0 if self.residual is None else self.residual


class Refiner(nn.Module):
    """PDE-Refiner with K refinements down to σ_min; the network is told log(1/σ_k²) as its log-SNR."""

    def __init__(
        self,
        net: Network,
        channels: int,
        *,
        steps: int = 3,
        sigma_min: float = 1e-2,
        residual: float | None = None,
    ) -> None:
        super().__init__()
        if steps < 1 or not 0 < sigma_min < 1:
            raise ValueError(
                f"a refiner needs at least 1 step and 0 < σ_min < 1, got {steps} and {sigma_min}"
            )
        self.net, self.channels, self.residual = net, channels, _checked_scale(residual)
        self.levels = tuple(
            sigma_min ** (k / steps) for k in range(steps + 1)
        )  # σ_0 = 1 … σ_K = σ_min

    def forward(self, x: Condition, generator: torch.Generator | None = None) -> State:
        """ŷ after the first prediction and all refinements: K + 1 calls."""
        state = x[:, : self.channels]
        z = torch.zeros_like(state)
        for k in range(len(self.levels)):
            index = torch.full((len(x),), k)
            z_k = self.noised(z, index, draw(z, generator) if k else z)
            out = self.prediction(z_k, x, index)
            z = z_k - self.levels[k] * out if k else out
        return z if self.residual is None else state + self.residual * z

    def noised(self, z: State, k: Int[Tensor, " B"], eps: State) -> State:
        """The network's input at step k: zero at first, then z + σ_k ε."""
        return torch.where(_column(k == 0, z), 0.0, z + self._sigma(k, z) * eps)

    def prediction(self, z_k: State, x: Condition, k: Int[Tensor, " B"]) -> State:
        """The raw network output at step k."""
        log_snr = -2 * torch.tensor(self.levels, dtype=torch.float64)[k].log()
        return self.net(z_k, x, log_snr.to(z_k))

    def target(self, z: State, k: Int[Tensor, " B"], eps: State) -> State:
        """What the network learns: z itself from nothing, then the noise."""
        return torch.where(_column(k == 0, z), z, eps)

    def encode(self, y: State, x: Condition) -> State:
        """z: the target in the network's units."""
        return y if self.residual is None else (y - x[:, : self.channels]) / self.residual

    def _sigma(self, k: Int[Tensor, " B"], z: State) -> Float[Tensor, B * ones]:
        return _column(torch.tensor(self.levels, dtype=torch.float64)[k], z).to(z.dtype)


def _column(per_sample: Tensor, like: State) -> Tensor:
    return per_sample.to(like.device).reshape(-1, *[1] * (like.ndim - 1))
