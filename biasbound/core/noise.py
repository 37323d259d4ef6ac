"""Noise levels, the forward process and the sources of random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from biasbound.core.streams import Streams

__all__ = [
    "Condition",
    "GivenNoise",
    "Sigma",
    "State",
    "Streams",
    "alpha_bar",
    "beside",
    "coefficients",
    "draw",
    "draw_index",
    "log_snr",
    "renoise",
    "sigma_from_alpha_bar",
    "sigma_from_log_snr",
]

State = Float[Tensor, "B C *N"]  # y: what is emulated
Condition = Float[Tensor, "B D *N"]  # x: the previous state, possibly with more channels (Mach, mask)
Sigma = float | Float[Tensor, " B"]

Number = TypeVar("Number", float, Tensor)


def _in_float64(formula: Callable[[Tensor], Tensor]) -> Callable[[Number], Number]:
    """Lift a formula on float64 tensors to floats and to tensors of any precision.

    A float gives a float, a tensor gives a float64 tensor.
    """

    def lifted(value: Number) -> Number:
        result = formula(torch.as_tensor(value, dtype=torch.float64))
        return result if isinstance(value, Tensor) else result.item()

    lifted.__doc__ = formula.__doc__
    return lifted


@_in_float64
def alpha_bar(sigma: Tensor) -> Tensor:
    """ᾱ = 1 − σ², computed as (1 − σ)(1 + σ), which is accurate as σ → 1."""
    return (1 - sigma) * (1 + sigma)


@_in_float64
def log_snr(sigma: Tensor) -> Tensor:
    """log(ᾱ/σ²): falls from +∞ at σ = 0 to −∞ at σ = 1."""
    return torch.log1p(-sigma) + torch.log1p(sigma) - 2 * torch.log(sigma)


@_in_float64
def sigma_from_alpha_bar(alpha_bar: Tensor) -> Tensor:
    """σ = √(1 − ᾱ)."""
    return torch.sqrt(1 - alpha_bar)


@_in_float64
def sigma_from_log_snr(log_snr: Tensor) -> Tensor:
    """σ = √(1/(1 + SNR))."""
    return torch.sqrt(torch.sigmoid(-log_snr))


def beside(values: Tensor, field: Tensor) -> Tensor:
    """Values where the field is and in its precision; the host does not wait for the device."""
    return values.to(field.dtype).to(field.device, non_blocking=True)


def coefficients(sigma: Sigma, y: State) -> tuple[float | Tensor, float | Tensor]:
    """(√ᾱ, σ), computed in float64 and shaped to multiply a field y of shape (B, C, *N).

    Raises an error for a level outside (0, 1): σ = 0 leaves no noise to remove, σ = 1 no signal to
    estimate. Levels that are on a device are not looked at, because that would stop it: there, both are NaN instead.
    """
    if isinstance(sigma, Tensor):
        level = sigma.double()
        seen = level.device.type == "cpu" and not torch.compiler.is_exporting()
        within = (level > 0) & (level < 1)
        inside = not seen or bool(within.all())
        level = level if seen else torch.where(within, level, torch.nan)
        shape = -1, *[1] * (y.ndim - 1)
        a: float | Tensor = beside(alpha_bar(level).sqrt().reshape(shape), y)
        s: float | Tensor = beside(level.reshape(shape), y)
    else:
        inside = 0 < sigma < 1
        a, s = math.sqrt(max(alpha_bar(float(sigma)), 0.0)), float(sigma)
    if not inside:
        raise ValueError(
            f"a noise level must lie strictly between 0 and 1, got {sigma}; float32 rounds levels "
            "close to 1 up to 1, so pass levels as floats or as a float64 tensor"
        )
    return a, s


def renoise(y: State, sigma: Sigma, eps: State) -> State:
    """√ᾱ y + σ ε: the only place where noise meets signal."""
    a, s = coefficients(sigma, y)
    return a * y + s * eps


class GivenNoise(torch.Generator):
    """Noise that is given instead of drawn, in the order in which it is used: (K, B, C, *N)."""

    def __new__(cls, eps: Float[Tensor, "K B *N"] | None) -> GivenNoise:  # noqa: PYI034
        return super().__new__(cls)

    def __init__(self, eps: Float[Tensor, "K B *N"] | None) -> None:
        self.eps, self.used = eps, 0

    def take(self, like: Tensor) -> Tensor:
        """The next field; without any, all are zero, and only counted."""
        self.used += 1
        if self.eps is None:
            return torch.zeros_like(like)
        if self.used > self.eps.shape[0] or self.eps.shape[1:] != like.shape:
            raise ValueError(
                f"noise of shape {tuple(self.eps.shape)} was given, but field {self.used} of shape {tuple(like.shape)} "
                "was asked for"
            )
        return self.eps[self.used - 1].to(like)


def _own_rows(sample: Callable[..., Tensor], shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """A random tensor with the rows that belong to this generator."""
    if isinstance(generator, Streams):
        return generator.own(sample((generator.whole, *shape[1:]), generator=generator))
    return sample(tuple(shape), generator=generator)


def draw(like: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """ε ~ N(0, I) with the shape, dtype and device of `like`.

    `Streams` draw where the field is. A plain generator draws on its own device, so one of the CPU gives the same noise
    on any device.
    """
    if isinstance(generator, GivenNoise):
        return generator.take(like)
    if isinstance(generator, Streams):
        return generator.draw(like)
    device = like.device if generator is None else generator.device
    return torch.randn(like.shape, generator=generator, device=device, dtype=like.dtype).to(like.device)


def draw_index(
    high: int, count: int, generator: torch.Generator | None = None, share: float | Sequence[float] | None = None
) -> Int[Tensor, " B"]:
    """`count` indices of 0 … high − 1, on the host: uniform; 0 with probability `share` and the others alike; or by shares.

    With one share per index the draw is stratified: of n samples, index i gets its share of n up to one sample. The host
    knows the levels of a batch, so that its shapes can depend on them and the device need not be asked.
    """
    if share is None or high == 1:
        return _own_rows(partial(torch.randint, high), (count,), generator)
    if isinstance(share, float):
        if not 0 < share < 1:
            raise ValueError(f"the share of the lowest level must lie in (0, 1), got {share}")
        place = _own_rows(partial(torch.rand, dtype=torch.float64), (count,), generator)
        above = 1 + ((place - share) / (1 - share) * (high - 1)).floor()
        return torch.where(place < share, torch.zeros_like(above), above).long().clamp(max=high - 1)
    if len(share) != high or min(share) < 0 or not math.isclose(sum(share), 1, abs_tol=1e-6):
        raise ValueError(f"{high} levels need as many shares, which sum to 1, got {list(share)}")
    return _own_rows(partial(_stratified, torch.tensor(share, dtype=torch.float64).cumsum(0)), (count,), generator)


def _stratified(ends: Tensor, shape: Sequence[int], generator: torch.Generator | None = None) -> Tensor:
    """Evenly spaced places in [0, 1), shifted together, as indices of the intervals with these ends; in random order."""
    count, device = shape[0], None if generator is None else generator.device
    shift = torch.rand((), generator=generator, dtype=torch.float64, device=device).cpu()
    index = torch.searchsorted(ends, (torch.arange(count) + shift) / count, right=True)
    order = torch.randperm(count, generator=generator, device=device).cpu()
    return index.clamp(max=len(ends) - 1)[order]
