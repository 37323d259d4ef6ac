r"""Denoisers.

A denoiser is any callable `denoiser(y_t, x, sigma) -> y_est`: from a noisy target y_t at level σ and the condition
x it estimates the clean target y. `NetDenoiser` turns a network `net(z_t, x, log_snr) -> output` into one. The
network is told the log-SNR, never a step index, so any level can be asked of any checkpoint.

With a = √ᾱ and s = σ, and ε the noise in z_t = a z + s ε:

    prediction   the network learns    its estimate of z
    ε            ε                     (z_t − s·output)/a
    x₀           z                     output
    v            a ε − s z             a z_t − s·output

z is y itself or a scaled increment: see `core.target`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from biasbound.core.noise import Condition, Sigma, State, coefficients, log_snr
from biasbound.core.target import PLAIN, Coefficient, Target
from biasbound.registry import find, home

__all__ = ["PREDICTIONS", "Denoiser", "NetDenoiser", "Network", "NonFiniteError", "Prediction", "ask"]


@runtime_checkable
class Denoiser(Protocol):
    """y_est = denoiser(y_t, x, σ), with σ a float or one level per sample."""

    def __call__(self, y_t: State, x: Condition, sigma: Sigma) -> State: ...


@runtime_checkable
class Network(Protocol):
    """output = net(z_t, x, log_snr) with log_snr of shape (B,); the output has the shape of z_t."""

    def __call__(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State: ...


class NonFiniteError(FloatingPointError):
    """A denoiser returned NaN or infinity."""


def ask(denoiser: Denoiser, y_t: State, x: Condition, sigma: Sigma, *, allow_nonfinite: bool = False) -> State:
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
        raise NonFiniteError(f"the denoiser returned NaN or infinity at {where} for {bad} of {len(y_est)} samples")
    return y_est


@dataclass(frozen=True)
class Prediction:
    """What a network predicts: `estimate(output, z_t, a, s)` is z, `objective(z, ε, a, s)` the right output.

    `start` is the rule for σ_0 that suits it: "sigma", the lowest stable level, or "error", the level of least error,
    where every level is stable and the lowest says nothing.
    """

    title: str
    estimate: Callable[[State, State, Coefficient, Coefficient], State]
    objective: Callable[[State, State, Coefficient, Coefficient], State]
    start: Literal["sigma", "error"] = "sigma"

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.title


def _eps_estimate(output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
    return (z_t - s * output) / a


def _eps_objective(z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
    return eps


def _x0_estimate(output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
    return output


def _x0_objective(z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
    return z


def _v_estimate(output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
    return a * z_t - s * output


def _v_objective(z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
    return a * eps - s * z


# ε-prediction is the paper's; its error is multiplied by σ/√ᾱ: large at the top, small at the bottom.
# v = √ᾱ ε − σ z is like x₀ at the top and like ε at the bottom.
PREDICTIONS: dict[str, Prediction] = home(
    "predictions",
    {
        "eps": Prediction("ε-prediction", _eps_estimate, _eps_objective),
        "x0": Prediction("x0-prediction", _x0_estimate, _x0_objective, "error"),
        "v": Prediction("v-prediction", _v_estimate, _v_objective),
    },
)


class NetDenoiser(nn.Module):
    """A network as a denoiser: `prediction` names what it predicts, `target` in which variables.

    A training loss compares `output(y_t, x, σ)` with `objective(y, x, σ, ε)`.
    """

    def __init__(self, net: Network | nn.Module, prediction: str = "eps", target: Target = PLAIN) -> None:
        super().__init__()
        self.net: Any = net
        self.prediction, self.rule = prediction, find(PREDICTIONS, prediction)
        self.target = target

    def forward(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        """y_est."""
        return self.estimate(self.output(y_t, x, sigma), y_t, x, sigma)

    def estimate(self, output: State, y_t: State, x: Condition, sigma: Sigma) -> State:
        """y_est from what `output` returned, for a loss that needs both."""
        z_t, a, s = self._enter(y_t, x, sigma)
        return self.target.decode(self.rule.estimate(output, z_t, a, s), x)

    def output(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        """The raw network output."""
        z_t, _, _ = self._enter(y_t, x, sigma)
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(len(z_t))
        return self.call(z_t, x, (log_snr(level) + self.target.shift).to(z_t))

    def objective(self, y: State, x: Condition, sigma: Sigma, eps: State) -> State:
        """The right output for y_t = √ᾱ y + σ ε."""
        _, a, s = self._enter(y, x, sigma)
        return self.rule.objective(self.target.encode(y, x), eps, a, s)

    def call(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State:
        """Ask the network."""
        output: State = self.net(z_t, x, log_snr)
        return output

    def _enter(self, y_t: State, x: Condition, sigma: Sigma) -> tuple[State, Coefficient, Coefficient]:
        return self.target.enter(y_t, x, *coefficients(sigma, y_t))
