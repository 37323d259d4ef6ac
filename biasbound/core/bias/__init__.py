"""Where a diffusion chain leaves its training distribution: errors, biases, bounds, spectra.

`ratio` defines a bias, with the own-prediction and two-step biases. `curve` measures all biases
along a schedule. `table` measures two-step biases between checkpoints cheaply. `bound` and
`spectrum` implement the paper's Appendices B and C.

A bias of 1 means that the chain is no worse than its denoiser, not that the denoiser is good.
"""

from biasbound.core.bias.bound import BoundRow, jacobian_norm, reb_bound
from biasbound.core.bias.curve import BiasRow, bias_curve
from biasbound.core.bias.estimate import Estimate, pooled
from biasbound.core.bias.ratio import (
    Measure,
    Stability,
    bias_ratio,
    clean_error,
    error_norm,
    own_bias,
    stability,
    two_step_bias,
)
from biasbound.core.bias.spectrum import ResidualSpectrum, dominant_power, predicted_own_bias, residual_spectrum
from biasbound.core.bias.table import TwoStepTable

__all__ = [
    "BiasRow",
    "BoundRow",
    "Estimate",
    "Measure",
    "ResidualSpectrum",
    "Stability",
    "TwoStepTable",
    "bias_curve",
    "bias_ratio",
    "clean_error",
    "dominant_power",
    "error_norm",
    "jacobian_norm",
    "own_bias",
    "pooled",
    "predicted_own_bias",
    "reb_bound",
    "residual_spectrum",
    "stability",
    "two_step_bias",
]
