r"""What a network learns in place of y: y itself, or the scaled increment over a first guess.

    plain      z = y
    residual   z = (y − g(x))/r,    r the spread of y − g(x), one number or one per channel

g(x) is the task's first guess of y (for a forecast the present state). Noise is always added to y. A denoiser with a
residual target changes variables,

    z_t = (y_t − √ᾱ g)/q,    a = √ᾱ r/q,    s = σ/q,    q = √(ᾱ r² + σ²),

which is exactly a noised increment (a² + s² = 1) at the lower log-SNR + 2 log r. So levels and errors stay in the units
of y, and ladders for plain and residual targets can be compared level by level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from biasbound.core.noise import Condition, State, beside

__all__ = ["PLAIN", "Coefficient", "Guess", "Target", "residual"]

Coefficient = float | Tensor
Guess = Callable[[Condition], State]


@dataclass(frozen=True)
class Target:
    """z in terms of y and x; an empty `scale` is the plain target.

    Without a `guess`, g(x) is the first channels of x, as many as y has.
    """

    scale: tuple[float, ...] = ()
    guess: Guess | None = None

    def __post_init__(self) -> None:
        if not all(r > 0 and math.isfinite(r) for r in self.scale):
            raise ValueError(f"the residual scale must be positive and finite, got {list(self.scale)}")

    def encode(self, y: State, x: Condition) -> State:
        """z from y."""
        return (y - self._start(x, y)) / self.unit(y) if self.scale else y

    def decode(self, z: State, x: Condition) -> State:
        """y from z."""
        return self._start(x, z) + self.unit(z) * z if self.scale else z

    def enter(
        self, y_t: State, x: Condition, a: Coefficient, s: Coefficient
    ) -> tuple[State, Coefficient, Coefficient]:
        """(z_t, a, s) in the network's variables, from y_t = a y + s ε."""
        if not self.scale:
            return y_t, a, s
        r = self.unit(y_t)
        q = ((a * r) ** 2 + s**2) ** 0.5
        return (y_t - a * self._start(x, y_t)) / q, a * r / q, s / q

    @property
    def shift(self) -> float:
        """2 log r, by which the log-SNR of z_t is lower; the mean over channels."""
        return sum(2 * math.log(r) for r in self.scale) / max(len(self.scale), 1)

    def unit(self, y: State) -> Coefficient:
        """r, ready to multiply a field; 1 for the plain target."""
        if len(self.scale) < 2:
            return self.scale[0] if self.scale else 1.0
        return beside(torch.tensor(self.scale, dtype=torch.float64), y).reshape(-1, *[1] * (y.ndim - 2))

    def _start(self, x: Condition, like: State) -> State:
        return x[:, : like.shape[1]] if self.guess is None else self.guess(x)


PLAIN = Target()


def residual(scale: float | Sequence[float], guess: Guess | None = None) -> Target:
    """The residual target with the spread r of y − g(x)."""
    return Target(tuple(scale) if isinstance(scale, Sequence) else (float(scale),), guess)
