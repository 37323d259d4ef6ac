"""Fréchet spectral distance (FSD) between the spectra of predictions and of the truth.

The S trajectories at one step are the samples. Each gives a feature vector of its log-amplitudes,
averaged over shells of wavenumber and put one channel after the other,

    f = concat_c mean_{k in shell r} (log(1 + |FFT(x_c)_k|))²,

and FSD is the squared Fréchet distance between the Gaussians with the features' means and
covariances,

    ‖μ₁ − μ₂‖² + Tr Σ₁ + Tr Σ₂ − 2 Tr (Σ₁^½ Σ₂ Σ₁^½)^½.

There are two variants. "centred" has shells around wavenumber 0, with radii up to Nyquist.
"authors" is how the paper's numbers were computed: the radius is measured in the unshifted array,
hence from Nyquist, over all radii; 10⁻⁶ is added to the diagonals; and the root is taken of the
product Σ₁Σ₂ as if it were symmetric, from its lower triangle. Only the first is a distance.

If any trajectory is broken at the step, FSD is +∞: leaving it out would reward the break.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

from biasbound.metrics.arrays import Array, broken, check, check_step, double, require_finite
from biasbound.metrics.spectra import shells

__all__ = ["FewSamples", "frechet_distance", "fsd", "fsd_curve", "spectral_features"]

RIDGE = 1e-6  # of the authors' variant


class FewSamples(UserWarning):
    """A covariance was estimated from fewer samples than it has dimensions."""


def _root(cov: Float64[Tensor, "d d"]) -> Float64[Tensor, "d d"]:
    """The symmetric square root; eigenvalues that rounding made negative count as 0."""
    values, vectors = torch.linalg.eigh((cov + cov.T) / 2)
    root: Tensor = (vectors * values.clamp_min(0).sqrt()) @ vectors.T
    return root


def _checked(mu1: Tensor, cov1: Tensor, mu2: Tensor, cov2: Tensor) -> tuple[Tensor, ...]:
    d = mu1.numel()
    if {mu1.shape, mu2.shape} != {(d,)} or {cov1.shape, cov2.shape} != {(d, d)}:
        found = [tuple(t.shape) for t in (mu1, cov1, mu2, cov2)]
        raise ValueError(f"means must be (d,) and covariances (d, d), got {found}")
    return tuple(t.double() for t in (mu1, cov1, mu2, cov2))


def frechet_distance(
    mu1: Float[Tensor, " *a"], cov1: Float[Tensor, " *b"], mu2: Float[Tensor, " *c"], cov2: Float[Tensor, " *d"]
) -> float:
    """‖μ₁ − μ₂‖² + Tr Σ₁ + Tr Σ₂ − 2 Tr (Σ₁^½ Σ₂ Σ₁^½)^½ of two Gaussians, in float64.

    The last trace is the sum of the singular values of Σ₁^½ Σ₂^½. It keeps its digits for singular
    covariances, where a root of the product's eigenvalues would turn errors of 10⁻¹⁶ into 10⁻⁸.
    """
    a, s1, b, s2 = _checked(mu1, cov1, mu2, cov2)
    shared = torch.linalg.svdvals(_root(s1) @ _root(s2)).sum()
    return float((a - b).square().sum() + (s1.trace() + s2.trace() - 2 * shared).clamp_min(0))


def _authors_distance(mu1: Tensor, cov1: Tensor, mu2: Tensor, cov2: Tensor) -> float:
    a, s1, b, s2 = _checked(mu1, cov1, mu2, cov2)
    ridge = RIDGE * torch.eye(len(a), dtype=torch.float64)
    s1, s2 = s1 + ridge, s2 + ridge
    shared = torch.linalg.eigvalsh(s1 @ s2).clamp_min(0).sqrt().sum()  # reads the lower triangle
    return float((a - b).square().sum() + (s1.trace() + s2.trace() - 2 * shared).clamp_min(0))


def _from_nyquist(grid: Sequence[int]) -> Int64[Tensor, " *N"]:
    """⌊distance⌋ of each index of the unshifted transform from the array's middle."""
    squares = torch.zeros(*grid, dtype=torch.float64)
    for axis, n in enumerate(grid):
        away = torch.arange(n, dtype=torch.float64) - n // 2
        squares = squares + away.square().reshape([-1 if a == axis else 1 for a in range(len(grid))])
    return squares.sqrt().floor().long()


def spectral_features(states: Array, variant: str = "centred") -> Float64[Tensor, "S d"]:
    """The feature vector of each state of (S, C, *N)."""
    values = double(states)
    grid = values.shape[2:]
    amplitude = torch.fft.fftn(values, dim=tuple(range(2, values.ndim))).abs().flatten(2)
    logs = torch.log1p(amplitude).square()
    if variant == "centred":
        shell = shells(grid).flatten()
        kept = max(grid) // 2 + 1
    elif variant == "authors":
        shell = _from_nyquist(grid).flatten()
        kept = int(shell.max()) + 1
    else:
        raise ValueError(f"there is no FSD variant {variant!r}; choose centred or authors")
    count = int(shell.max()) + 1
    total = torch.zeros(*logs.shape[:2], count, dtype=torch.float64).index_add(2, shell, logs)
    waves = torch.bincount(shell, minlength=count).clamp_min(1)
    return (total / waves)[..., :kept].flatten(1)


def _moments(features: Float64[Tensor, "S d"]) -> tuple[Tensor, Tensor]:
    return features.mean(0), torch.cov(features.T).reshape(2 * features.shape[1:])


def _fsd(pred: Array, truth: Array, steps: Sequence[int], variant: str) -> list[float]:
    check(pred, truth)
    if pred.shape[0] < 2:
        raise ValueError("FSD compares covariances over trajectories; give it at least 2 of them")
    breaks = broken(pred)
    found: list[float] = []
    warned = False
    for k in steps:
        actual = double(truth[:, k])
        if not bool(actual.isfinite().all()):
            for s, frame in enumerate(actual):
                require_finite(frame[None], s)
        real = spectral_features(actual, variant)
        if not warned and len(real) < real.shape[1]:
            warned = True
            warnings.warn(
                f"FSD estimates covariances of {real.shape[1]} features from {len(real)} "
                "trajectories; compare only values with the same number of trajectories",
                FewSamples,
                stacklevel=3,
            )
        if bool(((breaks > 0) & (breaks <= k + 1)).any()):
            found.append(float("inf"))
            continue
        made = spectral_features(pred[:, k], variant)
        distance = frechet_distance if variant == "centred" else _authors_distance
        found.append(distance(*_moments(real), *_moments(made)))
    return found


def fsd(pred: Array, truth: Array, step: int | None = None, variant: str = "centred") -> float:
    """FSD at predicted frame `step`, which counts from 1; by default the last.

    Warns (`FewSamples`) when there are fewer trajectories than features, since the value then
    depends on their number. +∞ if any trajectory is broken by then.
    """
    return _fsd(pred, truth, [check_step(step, pred.shape[1])], variant)[0]


def fsd_curve(pred: Array, truth: Array, variant: str = "centred") -> Float64[Tensor, " K"]:
    """FSD at every predicted frame; +∞ from the first break of any trajectory on."""
    return torch.tensor(_fsd(pred, truth, range(pred.shape[1]), variant), dtype=torch.float64)
