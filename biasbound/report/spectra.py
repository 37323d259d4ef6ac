"""Energy spectra of fields, summed over shells of wavenumber."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

__all__ = ["energy_spectrum"]


def energy_spectrum(fields: Float[np.ndarray, "B C *N"]) -> Float[np.ndarray, " K"]:
    r"""E(k) = ½ Σ_{|k'| ∈ [k − ½, k + ½)} |û(k')|²/N², mean over B and summed over C, k = 0 … N/2 (in waves a domain).

    N is the number of points, so that Σ_k E(k) is half the mean square of a resolved field.
    """
    grid = fields.shape[2:]
    axes = tuple(range(2, fields.ndim))
    power = np.abs(np.fft.fftn(fields.astype(np.float64), axes=axes)) ** 2 / np.prod(grid) ** 2
    waves = np.meshgrid(*[np.fft.fftfreq(n, 1 / n) for n in grid], indexing="ij")
    shell = np.sqrt(sum(k**2 for k in waves)).round().astype(np.int64)
    mean = power.mean(0).sum(0) / 2
    return np.bincount(shell.ravel(), weights=mean.ravel())[: min(grid) // 2 + 1]
