"""Scores of predictions against the truth.

Both are (S, K, C, *N): trajectories, predicted frames, channels, grid. The functions take arrays
alone, so that anyone's rollouts can be scored. Steps count from 1. Functions called `…_frames`
return a table with one value per trajectory and frame, from which `bootstrap` makes means with
intervals.

`METRICS` is what a rollout is scored by. Each entry is a function that takes a `Scene`
(prediction, truth and their grid) and yields `Result`s; `biasbound.metrics.score.score` makes rows
of them, and `biasbound.metrics.scores.score` a table of a rollout beside baselines.

Nothing is clipped or left out in silence. A trajectory is broken from its first non-finite frame
on (`broken`). From there its errors and CRPS are +∞, its correlation is 0, FSD is +∞, spread–skill
is NaN, and spectra of the frame are NaN. Finite but absurd states are scored as they are
(`escaped` counts them).
"""

from biasbound.metrics import standard, weather
from biasbound.metrics.arrays import Array, Mask, at_points, broken, escaped, filled
from biasbound.metrics.correlation import CorrelationTime, correlation_frames, correlation_time, share
from biasbound.metrics.derivatives import derivative, vorticity
from biasbound.metrics.ensemble import RankHistogram, crps_frames, rank_histogram, spread_and_error, spread_skill
from biasbound.metrics.errors import VRMSE_EPS, Scale, mse, mse_at, mse_frames, nrmse_frames, vrmse_frames
from biasbound.metrics.frechet import FewSamples, frechet_distance, fsd, fsd_curve, spectral_features
from biasbound.metrics.intervals import Interval, bootstrap
from biasbound.metrics.scene import Metric, Result, Scene
from biasbound.metrics.spectra import (
    BANDS,
    band_energies,
    energy_spectrum,
    enstrophy_spectrum,
    radial_spectrum,
    shells,
    temporal_spectrum,
    wavenumbers,
)
from biasbound.registry import home

__all__ = [
    "BANDS",
    "METRICS",
    "VRMSE_EPS",
    "Array",
    "CorrelationTime",
    "FewSamples",
    "Interval",
    "Mask",
    "Metric",
    "RankHistogram",
    "Result",
    "Scale",
    "Scene",
    "at_points",
    "band_energies",
    "bootstrap",
    "broken",
    "correlation_frames",
    "correlation_time",
    "crps_frames",
    "derivative",
    "energy_spectrum",
    "enstrophy_spectrum",
    "escaped",
    "filled",
    "frechet_distance",
    "fsd",
    "fsd_curve",
    "mse",
    "mse_at",
    "mse_frames",
    "nrmse_frames",
    "radial_spectrum",
    "rank_histogram",
    "share",
    "shells",
    "spectral_features",
    "spread_and_error",
    "spread_skill",
    "temporal_spectrum",
    "vorticity",
    "vrmse_frames",
    "wavenumbers",
]

# In the order of their rows.
METRICS: dict[str, Metric] = home(
    "metrics",
    {
        "mse": standard.mse,
        "vrmse": standard.vrmse,
        "mse_norm": standard.mse_norm,
        "nrmse": standard.nrmse,
        "correlation_time": standard.correlation_times,
        "fsd": standard.fsd_centred,
        "fsd_legacy": standard.fsd_legacy,
        "bands": standard.bands,
        "ensemble": standard.ensemble,
        "ranks": standard.ranks,
        "weather": weather.weather,
        "broken": standard.breaks,
        "escaped": standard.escapes,
    },
)
