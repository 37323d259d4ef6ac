r"""Denoisers.

A denoiser is any callable `denoiser(y_t, x, sigma) -> y_est`: from a noisy target y_t at level σ and the condition
x it estimates the clean target y. `NetDenoiser` turns a network `net(z_t, x, log_snr) -> output` into one. The
network is told the log-SNR, never a step index, so any level can be asked of any checkpoint.

With a = √ᾱ and s = σ, and ε the noise in z_t = a z + s ε, the paper's three predictions are points of one family:

    prediction   the network learns    its estimate of z      c of `Scaled`
    ε            ε                     (z_t − s·output)/a     ∞
    v            a ε − s z             a z_t − s·output       1
    x₀           z                     output                 0

z is y itself or a scaled increment: see `core.target`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from biasbound.core.mask import Mask, cleared
from biasbound.core.noise import Condition, Sigma, State, beside, coefficients, log_snr
from biasbound.core.target import PLAIN, Coefficient, Target
from biasbound.registry import find, home

__all__ = ["PREDICTIONS", "Denoiser", "NetDenoiser", "Network", "NonFiniteError", "Prediction", "Scaled", "ask"]


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
        raise nonfinite(sigma, int(lost(y_est)), len(y_est))
    return y_est


def lost(y_est: State) -> Int[Tensor, ""]:
    """How many samples have a NaN or infinity; the answer stays where the field is."""
    return (~y_est.isfinite()).flatten(1).any(1).sum()


def nonfinite(sigma: Sigma, bad: int, count: int) -> NonFiniteError:
    where = f"σ = {sigma:.6g}" if isinstance(sigma, float) else "mixed levels"
    return NonFiniteError(f"the denoiser returned NaN or infinity at {where} for {bad} of {count} samples")


class Prediction(ABC):
    """What a network predicts of z_t = a z + s ε, and what it is shown of z_t."""

    title: str
    start: Literal["sigma", "error"] = "sigma"
    """the rule for σ_0 that suits it: the lowest stable level, or the level of least error, where every level is
    stable and the lowest says nothing"""
    warm: float = 0.15
    """the share of a growth's budget that suits its top level alone: large where the network predicts z from x there as
    well as a direct model does, small where accuracy has to come from lower levels"""

    @abstractmethod
    def estimate(self, output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
        """z from the network's output."""

    @abstractmethod
    def objective(self, z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
        """The right output."""

    def shown(self, z_t: State, a: Coefficient, s: Coefficient) -> State:
        """What the network sees of z_t."""
        return z_t

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        return self.title


@dataclass(frozen=True)
class Scaled(Prediction):
    """The family over a scale c, in the network's units; σ̃ = s/a.

        z_est = w z_t/a − o F(g z_t),    w = c²/(c² + σ̃²),    o = √((1 − w)² + w²σ̃²),    g = c/√(c² + σ̃²)

    Below σ̃ ≈ c the network removes noise, above it predicts z from x alone, as a direct network does. w is the optimal
    weight of a measurement with noise σ̃ beside a guess with error c. The gate g keeps noise out of the network where
    it says nothing. ε-prediction is c = ∞, v-prediction c = 1 and x₀-prediction c = 0, all without a gate.
    """

    title: str
    c: float
    gated: bool = False  # whether the network sees g z_t instead of z_t
    sign: float = 1.0  # of the output: −1 for x₀-prediction, whose network learns z and not −z
    start: Literal["sigma", "error"] = "sigma"
    warm: float = 0.15

    def estimate(self, output: State, z_t: State, a: Coefficient, s: Coefficient) -> State:
        if self.c == math.inf:  # in the paper's order of operations: long rollouts of chaos repeat to the last bit
            return (z_t - s * output) / a
        w, _, o = self.parts(a, s)
        return w / a * z_t - self.sign * o * output

    def objective(self, z: State, eps: State, a: Coefficient, s: Coefficient) -> State:
        if self.c == math.inf:
            return eps
        w, rest, o = self.parts(a, s)
        return self.sign / o * (w * s / a * eps - rest * z)

    def shown(self, z_t: State, a: Coefficient, s: Coefficient) -> State:
        return z_t / (1 + (s / (a * self.c)) ** 2) ** 0.5 if self.gated else z_t

    def parts(self, a: Coefficient, s: Coefficient) -> tuple[Coefficient, Coefficient, Coefficient]:
        """(w, 1 − w, o), without loss of digits at either end, c = ∞ and c = 0."""
        noise, signal = (s**2, (self.c * a) ** 2) if self.c < 1 else ((s / (a * self.c)) ** 2, 1.0)
        w, rest = signal / (signal + noise), noise / (signal + noise)
        return w, rest, (rest**2 + (w * s / a) ** 2) ** 0.5


# ε is the paper's; its error is multiplied by σ/√ᾱ: large at the top, small at the bottom. The scale of "scaled" is found
# with the ladder (`NetDenoiser.rescale`).
PREDICTIONS: dict[str, Prediction] = home(
    "predictions",
    {
        "eps": Scaled("ε-prediction", math.inf),
        "x0": Scaled("x0-prediction", 0.0, sign=-1.0, start="error"),
        "v": Scaled("v-prediction", 1.0),
        "scaled": Scaled("scaled prediction", 1e-3, gated=True, start="error", warm=0.5),
    },
)


class NetDenoiser(nn.Module):
    """A network as a denoiser: `prediction` names what it predicts, `target` in which variables.

    A training loss compares `output(y_t, x, σ)` with `objective(y, x, σ, ε)`. Where a `mask` says that a point is not
    valid, the estimate is 0.
    """

    mask: Mask | None

    def __init__(
        self, net: Network | nn.Module, prediction: str = "eps", target: Target = PLAIN, mask: Mask | None = None
    ) -> None:
        super().__init__()
        self.register_buffer("mask", mask)
        self.net: Any = net
        self.prediction, self.rule = prediction, find(PREDICTIONS, prediction)
        self.target = target

    def rescale(self, c: float) -> None:
        """Set the scale c of a prediction that has one to find."""
        if not (isinstance(self.rule, Scaled) and 0 < c < math.inf):
            raise ValueError(f"{self.prediction}-prediction has no scale c = {c}: it must be positive and finite")
        self.rule = replace(self.rule, c=c)

    def forward(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        """y_est."""
        return self.estimate(self.output(y_t, x, sigma), y_t, x, sigma)

    def estimate(self, output: State, y_t: State, x: Condition, sigma: Sigma) -> State:
        """y_est from what `output` returned, for a loss that needs both."""
        z_t, a, s = self._enter(y_t, x, sigma)
        return cleared(self.target.decode(self.rule.estimate(output, z_t, a, s), x), self.mask)

    def output(self, y_t: State, x: Condition, sigma: Sigma) -> State:
        """The raw network output."""
        z_t, a, s = self._enter(y_t, x, sigma)
        level = torch.as_tensor(sigma, dtype=torch.float64).expand(z_t.shape[0])
        return self.call(self.rule.shown(z_t, a, s), x, beside(log_snr(level) + self.target.shift, z_t))

    def objective(self, y: State, x: Condition, sigma: Sigma, eps: State) -> State:
        """The right output for y_t = √ᾱ y + σ ε."""
        _, a, s = self._enter(y, x, sigma)
        return self.rule.objective(self.target.encode(y, x), eps, a, s)

    def call(self, z_t: State, x: Condition, log_snr: Float[Tensor, " B"]) -> State:
        """Ask the network, which sees 0 at masked points."""
        output: State = self.net(cleared(z_t, self.mask), cleared(x, self.mask), log_snr)
        return output

    def _enter(self, y_t: State, x: Condition, sigma: Sigma) -> tuple[State, Coefficient, Coefficient]:
        return self.target.enter(y_t, x, *coefficients(sigma, y_t))
