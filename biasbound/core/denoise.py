r"""Denoisers.

A denoiser is any callable `denoiser(y_t, x, sigma) -> y_est`: from a noisy target y_t at level σ and the condition
x it estimates the clean target y. The wrappers here turn a network `net(z_t, x, log_snr) -> output` into one. The
network is told the log-SNR, never a step index, so any level can be asked of any checkpoint.

With a = √ᾱ and s = σ, and ε the noise in z_t = a z + s ε:

    prediction   the network learns    its estimate of z
    ε            ε                     (z_t − s·output)/a
    x₀           z                     output
    v            a ε − s z             a z_t − s·output

**Residual target.** With `residual=r` the network works on the scaled increment z = (y − x)/r, whose spread is near
one when r is the standard deviation of y − x. Noise is still added to y; the wrapper changes variables,

    z_t = (y_t − √ᾱ x)/q,    a = √ᾱ r/q,    s = σ/q,    q = √(ᾱ r² + σ²),

which is exactly a noised increment (a² + s² = 1) at the lower log-SNR + 2 log r. So the contract, the levels and all
errors stay in the units of y, and ladders for plain and residual targets can be compared level by level.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.core.noise import Condition, Sigma, State, coefficients, log_snr

__all__ = [
    "PREDICTIONS",
    "Denoiser",
    "EpsDenoiser",
    "NetDenoiser",
    "Network",
    "NonFiniteError",
    "VDenoiser",
    "X0Denoiser",
    "ask",
]

Coefficient = float | Tensor


@runtime_checkable
class Denoiser(Protocol):
    """y_est = denoiser(y_t, x, σ), with σ a float or one level a sample."""

    def __call__(self, y_t: State, x: Condition, sigma: Sigma) -> State: ...


@runtime_checkable
class Network(Protocol):
    """output = net(z_t, x, log_snr) with log_snr of shape (B,); the output has the shape of z_t."""

    def __call__(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State: ...


class NonFiniteError(FloatingPointError):
    """A denoiser returned NaN or infinity."""


def ask(
    denoiser: Denoiser, y_t: State, x: Condition, sigma: Sigma, *, allow_nonfinite: bool = False
) -> State:
    """Call a denoiser and hold it to its contract: the shape of y_t, and finite values.

    A wrong shape would broadcast and a NaN would average, both into numbers that look like results.
    """
    y_est = denoiser(y_t, x, sigma)
    if y_est.shape != y_t.shape:
        raise ValueError(
            f"the denoiser returned shape {tuple(y_est.shape)} for a noisy target of shape {tuple(y_t.shape)}; "
            "an estimate must have the target's shape"
        )
    if not allow_nonfinite and not bool(y_est.isfinite().all()):
        bad = int((~y_est.isfinite()).flatten(1).any(1).sum())
        where = f"σ = {sigma:.6g}" if isinstance(sigma, float) else "mixed levels"
        raise NonFiniteError(
            f"the denoiser returned NaN or infinity at {where} for {bad} of {len(y_est)} samples"
        )
    return y_est


class NetDenoiser(nn.Module, ABC):
    """A network as a denoiser; subclasses say what it predicts.

    `residual`: None for the plain target, or the scale r of the increment y − x, one number or one a channel.
    The state is the first C channels of x; further ones (Mach number, mask) only inform the network.
    """

    def __init__(
        self,
        net: Network,
        residual: float | Sequence[float] | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        scale = (
            () if residual is None else residual if isinstance(residual, Sequence) else (residual,)
        )
        if not all(r > 0 and math.isfinite(r) for r in scale):
            raise ValueError(f"the residual scale must be positive and finite, got {residual}")
        self.residual = tuple(float(r) for r in scale)

    @abstractmethod
    def estimate(self, output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
        """z from the network's output."""

    @abstractmethod
    def objective(self, z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
        """What the network should output for z_t = a z + s ε."""

    def forward(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        """y_est."""
        return self.answer(self.prediction(y_t, x, sigma), y_t, x, sigma)

    def answer(self, output: State, y_t: State, x: Condition, sigma: Sigma) -> State:
        """y_est from what `prediction` returned, for a loss that needs both."""
        z_t, a, s = self._enter(y_t, x, sigma)
        z = self.estimate(output, z_t, a, s)
        return x[:, : y_t.shape[1]] + self._scale(y_t) * z if self.residual else z

    def prediction(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        """The raw network output, to be compared with `target` in a training loss."""
        return self._output(self._enter(y_t, x, sigma)[0], x, sigma)

    def target(self, y: State, x: Condition, sigma: Sigma, eps: State) -> State:
        """The right output for y_t = √ᾱ y + σ ε: a network is trained on ‖prediction − target‖²."""
        _, a, s = self._enter(y, x, sigma)
        z = (y - x[:, : y.shape[1]]) / self._scale(y) if self.residual else y
        return self.objective(z, eps, a, s)

    def _output(self, z_t: State, x: Condition, sigma: Sigma) -> State:
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(len(z_t))
        shift = sum(2 * math.log(r) for r in self.residual) / max(len(self.residual), 1)
        return self.net(z_t, x, (log_snr(level) + shift).to(z_t))

    def _enter(
        self, y_t: State, x: Condition, sigma: Sigma
    ) -> tuple[State, Coefficient, Coefficient]:
        """(z_t, a, s): the noisy target in the network's variables."""
        a, s = coefficients(sigma, y_t)
        if not self.residual:
            return y_t, a, s
        r = self._scale(y_t)
        q = ((a * r) ** 2 + s**2) ** 0.5
        return (y_t - a * x[:, : y_t.shape[1]]) / q, a * r / q, s / q

    def _scale(self, y: State) -> Coefficient:
        if len(self.residual) == 1:
            return self.residual[0]
        return y.new_tensor(self.residual).reshape(-1, *[1] * (y.ndim - 2))


class EpsDenoiser(NetDenoiser):
    """ε-prediction, the paper's choice. Its error is multiplied by σ/√ᾱ: large at the top, small at the bottom."""

    def estimate(self, output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
        return (z_t - s * output) / a

    def objective(self, z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
        return eps


class X0Denoiser(NetDenoiser):
    """x₀-prediction: the network's output is the estimate."""

    def estimate(self, output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
        return output

    def objective(self, z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
        return z


class VDenoiser(NetDenoiser):
    """v-prediction, v = √ᾱ ε − σ z: like x₀ at the top, like ε at the bottom."""

    def estimate(self, output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
        return a * z_t - s * output

    def objective(self, z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
        return a * eps - s * z


PREDICTIONS: dict[str, type[NetDenoiser]] = {"eps": EpsDenoiser, "x0": X0Denoiser, "v": VDenoiser}
