"""Spectra that keep Parseval's sum: over all shells they add up to the mean square.

Shells. With points h_a apart along an axis of N_a points, a wave with n_a periods along each axis
has the wavenumber 2π n_a/(N_a h_a). Its radius, in units of the longest wave's 2π/max_a(N_a h_a),
is rounded to the nearest integer. All waves have a shell, those in the corners beyond Nyquist
included. Non-finite frames give NaN throughout their own spectrum and change no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from biasbound.metrics.arrays import Array, double
from biasbound.metrics.derivatives import derivative, each_axis, vorticity

__all__ = [
    "BANDS",
    "band_energies",
    "energy_spectrum",
    "enstrophy_spectrum",
    "radial_spectrum",
    "shells",
    "temporal_spectrum",
    "wavenumbers",
]

Spacing = float | Sequence[float]
BANDS = ("low", "mid", "high")


def shells(grid: Sequence[int], spacing: Spacing = 1.0) -> Int64[Tensor, " *N"]:
    """The shell of each wave, in the order of `torch.fft.fftn`."""
    lengths = [n * h for n, h in zip(grid, each_axis(spacing, len(grid), "spacing"), strict=True)]
    longest, squares = max(lengths), torch.zeros(*grid, dtype=torch.float64)
    for axis, (n, length) in enumerate(zip(grid, lengths, strict=True)):
        waves = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64) * (longest / length)
        squares = squares + waves.square().reshape([-1 if a == axis else 1 for a in range(len(grid))])
    return (squares.sqrt() + 0.5).floor().long()


def wavenumbers(grid: Sequence[int], spacing: Spacing = 1.0) -> Float64[Tensor, " R"]:
    """The wavenumber of each shell's radius, in radians per unit of length."""
    every = each_axis(spacing, len(grid), "spacing")
    longest = max(n * h for n, h in zip(grid, every, strict=True))
    count = int(shells(grid, spacing).max()) + 1
    return 2 * math.pi / longest * torch.arange(count, dtype=torch.float64)


def radial_spectrum(field: Array, rank: int, spacing: Spacing = 1.0) -> Float64[Tensor, "... R"]:
    """Σ_{k in shell r} |FFT(u)_k|²/n² over the last `rank` axes with n points; Σ_r is ⟨u²⟩."""
    if not 1 <= rank <= field.ndim:
        raise ValueError(f"a field {tuple(field.shape)} cannot have {rank} space axes")
    values = double(field)
    grid, points = tuple(values.shape[-rank:]), tuple(range(-rank, 0))
    # An infinity would otherwise show as a mixture of infinities and NaN.
    values = torch.where(values.isfinite().all(points, keepdim=True), values, torch.nan)
    power = torch.fft.fftn(values, dim=points).abs().square()
    power = power.flatten(-rank) / math.prod(grid) ** 2
    shell = shells(grid, spacing).flatten()
    summed = torch.zeros(*power.shape[:-1], int(shell.max()) + 1, dtype=torch.float64)
    return summed.index_add(-1, shell, power)


def energy_spectrum(field: Array, rank: int, spacing: Spacing = 1.0) -> Float64[Tensor, "... R"]:
    """E(r) of a field (…, C, *N) with `rank` space axes: Σ_r E(r) = ½ ⟨Σ_c u_c²⟩."""
    if field.ndim < rank + 1:
        raise ValueError(f"an energy spectrum needs (…, C, *N), but this field is {tuple(field.shape)}")
    return radial_spectrum(field, rank, spacing).sum(-2) / 2


def band_energies(field: Array, rank: int, spacing: Spacing = 1.0) -> Float64[Tensor, "... 3"]:
    """The energy in low, middle and high shells; their sum is ½ ⟨Σ_c u_c²⟩.

    With R the shell of Nyquist along the longest side, r³ < R is low and r³ < R² is middle: thirds of the logarithm of
    the wavenumber. The mean belongs to the low ones.
    """
    spectrum = energy_spectrum(field, rank, spacing)
    sides = zip(field.shape[-rank:], each_axis(spacing, rank, "spacing"), strict=True)
    _, points = max((n * h, n) for n, h in sides)
    cube, nyquist = torch.arange(spectrum.shape[-1]) ** 3, max(1, points // 2)
    band = (cube >= nyquist).long() + (cube >= nyquist**2)
    return torch.zeros(*spectrum.shape[:-1], 3, dtype=torch.float64).index_add(-1, band, spectrum)


def enstrophy_spectrum(
    field: Array, rank: int, spacing: Spacing = 1.0, periodic: bool | Sequence[bool] = True
) -> Float64[Tensor, "... R"]:
    """Z(r) with Σ_r Z(r) = ½ ⟨ω²⟩, where ω is the vorticity of a velocity (…, 2, H, W).

    In one dimension ω is ∂_x u of a field (…, 1, N).
    """
    if rank == 2:
        return energy_spectrum(vorticity(field, periodic=periodic, spacing=spacing), 2, spacing)
    if rank != 1 or field.ndim < 2 or field.shape[-2] != 1:
        raise ValueError(
            f"enstrophy needs a field (…, 2, H, W) or (…, 1, N), but this one is {tuple(field.shape)} with rank {rank}"
        )
    (wraps,), (h,) = each_axis(periodic, 1, "periodic"), each_axis(spacing, 1, "spacing")
    return energy_spectrum(derivative(double(field), -1, periodic=wraps, spacing=h), 1, h)


def temporal_spectrum(
    fields: Array, probes: Sequence[Sequence[int]], dt: float
) -> tuple[Float64[Tensor, " F"], Float64[Tensor, "S P C F"]]:
    """Frequencies and one-sided power of the time series at the grid points `probes`.

    Frequencies are in cycles per unit of time. For each trajectory of (S, K, C, *N), probe and
    channel, Σ_f is the mean square over time; f = 0 holds the squared mean. No window is applied.
    A trajectory with a non-finite value at a probe has NaN there.
    """
    frames, rank = fields.shape[1], fields.ndim - 3
    if not probes or any(len(p) != rank for p in probes):
        raise ValueError(f"temporal spectra need probes with {rank} indices each, got {list(probes)}")
    series = torch.stack([double(fields[(slice(None),) * 3 + tuple(p)]) for p in probes], 1).transpose(
        2, 3
    )  # (S, P, C, K)
    series = torch.where(series.isfinite().all(-1, keepdim=True), series, torch.nan)
    power = torch.fft.rfft(series, dim=-1).abs().square() / frames**2
    twice = torch.full((power.shape[-1],), 2.0, dtype=torch.float64)
    twice[0] = 1.0
    if frames % 2 == 0:
        twice[-1] = 1.0  # Nyquist is its own mirror image
    return torch.fft.rfftfreq(frames, dt, dtype=torch.float64), power * twice
