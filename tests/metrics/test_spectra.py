"""Derivatives, spectra and the Fréchet distance against closed forms, SciPy and Parseval."""

import math
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from draws import GRIDS, draw, quiet_fsd
from hypothesis import given
from hypothesis import strategies as st

from biasbound import metrics

# --- derivatives


@pytest.mark.parametrize(("h", "w"), [(16, 16), (15, 16), (24, 10)])
def test_vorticity_of_waves_is_exact(h, w):
    lx, ly = 2 * math.pi, 3.0
    x = (torch.arange(h, dtype=torch.float64) * lx / h)[:, None]
    y = (torch.arange(w, dtype=torch.float64) * ly / w)[None, :]
    p, q = 2.0, 2 * math.pi / ly
    u, v = torch.sin(p * x) * torch.cos(q * y), torch.cos(p * x) * torch.sin(q * y)
    exact = -p * torch.sin(p * x) * torch.sin(q * y) + q * torch.sin(p * x) * torch.sin(q * y)
    found = metrics.vorticity(torch.stack([u, v])[None], spacing=(lx / h, ly / w))
    assert found.shape == (1, 1, h, w)
    assert torch.allclose(found[0, 0], exact, atol=1e-12)


def test_vorticity_of_a_rotation_is_exact_without_walls_that_wrap():
    x, y = torch.meshgrid(
        torch.arange(6, dtype=torch.float64) * 0.5, torch.arange(9, dtype=torch.float64), indexing="ij"
    )
    spin = torch.stack([-y + x**2, x + y**2])  # ω = 2; squares test the order at the ends
    found = metrics.vorticity(spin.float().numpy(), periodic=False, spacing=(0.5, 1.0))
    assert torch.allclose(found, torch.full((1, 6, 9), 2.0, dtype=torch.float64), atol=1e-12)


def test_a_channel_wraps_along_one_axis_alone():
    n, m = 16, 7
    x = (torch.arange(n, dtype=torch.float64) * 2 * math.pi / n)[:, None].expand(n, m)
    y = torch.arange(m, dtype=torch.float64)[None].expand(n, m)
    flow = torch.stack([y**2, torch.sin(x)])
    found = metrics.vorticity(flow, periodic=(True, False), spacing=(2 * math.pi / n, 1.0))[0]
    assert torch.allclose(found, torch.cos(x) - 2 * y, atol=1e-12)
    with pytest.raises(ValueError, match=r"velocity"):
        metrics.vorticity(flow[:1])
    with pytest.raises(ValueError, match=r"each of 2 axes"):
        metrics.vorticity(flow, spacing=(1.0, 1.0, 1.0))


def test_the_wave_at_nyquist_has_no_derivative_on_the_grid():
    wave = torch.tensor([1.0, -1.0] * 8, dtype=torch.float64)
    assert metrics.derivative(wave, 0, periodic=True, spacing=0.1).abs().max() < 1e-12


# --- spectra


@given(seed=st.integers(0, 1000), grid=st.sampled_from(GRIDS), spacing=st.floats(0.1, 10))
def test_spectra_add_up_to_the_mean_square(seed, grid, spacing):
    rank = len(grid)
    field = draw(3, 2, *grid, seed=seed)
    points = tuple(range(-rank, 0))
    every = [spacing * (a + 1) for a in range(rank)]
    energy = metrics.energy_spectrum(field, rank, every).sum(-1)
    assert torch.allclose(energy, field.square().mean(points).sum(-1) / 2, rtol=1e-10)
    assert torch.allclose(metrics.band_energies(field, rank, every).sum(-1), energy, rtol=1e-10)
    radial = metrics.radial_spectrum(field, rank, every)
    assert torch.allclose(radial.sum(-1), field.square().mean(points), rtol=1e-10)
    assert radial.shape[-1] == len(metrics.wavenumbers(grid, every))
    if rank == 2:
        spin = metrics.vorticity(field, spacing=every)
        found = metrics.enstrophy_spectrum(field, 2, every).sum(-1)
        assert torch.allclose(found, spin.square().mean((-3, -2, -1)) / 2, rtol=1e-10)
    else:
        slope = metrics.derivative(field[:, :1], -1, periodic=True, spacing=spacing)
        found = metrics.enstrophy_spectrum(field[:, :1], 1, spacing).sum(-1)
        assert torch.allclose(found, slope.square().mean((-2, -1)) / 2, rtol=1e-10)


def test_a_wave_stands_in_its_own_shell():
    x = (torch.arange(32, dtype=torch.float64) / 32)[:, None]
    y = (torch.arange(16, dtype=torch.float64) / 32)[None]  # square cells: half as long
    field = torch.cos(2 * math.pi * (3 * x + 4 * y))  # 3 periods along x, 2 along y: radius 5
    found = metrics.radial_spectrum(field, 2, 1 / 32)
    assert math.isclose(found[5], 0.5, rel_tol=1e-12)
    assert math.isclose(found.sum(), 0.5, rel_tol=1e-12)
    assert math.isclose(metrics.wavenumbers((32, 16), 1 / 32)[5], 2 * math.pi * 5, rel_tol=1e-12)


def test_bands_are_thirds_of_the_logarithm_of_the_wavenumber():
    x = torch.arange(128, dtype=torch.float64) / 128
    waves = {0: "low", 3: "low", 4: "mid", 15: "mid", 16: "high", 64: "high"}  # Nyquist is 64 = 4³
    for wave, band in waves.items():
        found = metrics.band_energies(torch.cos(2 * math.pi * wave * x)[None], 1, 0.3)
        assert metrics.BANDS[int(found.argmax())] == band
        assert found.max() == pytest.approx(found.sum())


def test_rows_of_bands_are_shares_of_the_truths_energy():
    truth = draw(4, 1, 1, 64)
    low = torch.fft.irfft(torch.fft.rfft(truth)[..., :4], 64)  # Nyquist is 32: shells 0 to 3 are low
    for made, expected in ((truth, (1, 1, 1)), (2 * truth, (4, 4, 4)), (low, (1, 0, 0))):
        found = metrics.METRICS["bands"](metrics.Scene(made[None], truth, dt=1.0))
        assert [float(r.value.mean) for r in found] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("frames", [16, 17])
def test_the_series_at_a_probe_has_its_power_at_its_frequency(frames):
    dt, f = 0.25, 3 / (frames * 0.25)
    time = torch.arange(frames, dtype=torch.float64) * dt
    fields = draw(2, frames, 1, 4, 5)
    fields[:, :, 0, 1, 2] = 1 + torch.cos(2 * math.pi * f * time)
    frequencies, power = metrics.temporal_spectrum(fields, [(1, 2), (0, 0)], dt)
    assert math.isclose(frequencies[3], f)
    assert torch.allclose(power[:, 0, 0, [0, 3]], torch.tensor([1, 0.5], dtype=torch.float64))
    assert torch.allclose(power[:, 1, 0].sum(-1), fields[:, :, 0, 0, 0].square().mean(1))
    with pytest.raises(ValueError, match=r"2 indices"):
        metrics.temporal_spectrum(fields, [(1,)], dt)


# --- Fréchet spectral distance


@given(seed=st.integers(0, 1000), d=st.integers(1, 7))
def test_the_frechet_distance_is_scipys(seed, d):
    (a, b), (mu1, mu2) = draw(2, d + 3, d, seed=seed), draw(2, d, seed=seed + 1)
    s1, s2 = a.T @ a, b.T @ b
    root = scipy.linalg.sqrtm((s1 @ s2).numpy()).real
    expected = float((mu1 - mu2).square().sum() + s1.trace() + s2.trace()) - 2 * np.trace(root)
    assert math.isclose(metrics.frechet_distance(mu1, s1, mu2, s2), expected, rel_tol=1e-8, abs_tol=1e-8)


def test_the_frechet_distance_of_spheres_is_that_of_their_radii():
    eye, zero = torch.eye(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    found = metrics.frechet_distance(zero, 9 * eye, zero + 1, 4 * eye)
    assert math.isclose(found, 4 + 4 * (3 - 2) ** 2)
    with pytest.raises(ValueError, match=r"means must be"):
        metrics.frechet_distance(zero, eye[:3], zero, eye)


def test_fsd_is_the_frechet_distance_of_its_features():
    pred, truth = draw(40, 3, 1, 16) * 1.3, draw(40, 3, 1, 16, seed=1)
    f, g = (metrics.spectral_features(x[:, 1]) for x in (truth, pred))
    c = [np.cov(x.numpy().T) for x in (f, g)]
    root = scipy.linalg.sqrtm(c[0] @ c[1]).real
    expected = float((f.mean(0) - g.mean(0)).square().sum()) + np.trace(c[0] + c[1] - 2 * root)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # 9 features of 40 samples: no warning
        assert math.isclose(metrics.fsd(pred, truth, step=2), expected, rel_tol=1e-8)
        curve = metrics.fsd_curve(pred, truth)
    assert curve[1] == metrics.fsd(pred, truth, step=2)
    assert curve[2] == metrics.fsd(pred, truth)
    assert math.isclose(curve[2], metrics.fsd(truth, pred), rel_tol=1e-9)  # a distance: symmetric


def test_features_are_centred_and_end_at_nyquist():
    x = torch.arange(16, dtype=torch.float64) * 2 * math.pi / 16
    wave = torch.cos(3 * x).reshape(1, 1, 16)
    features = metrics.spectral_features(wave)
    assert features.shape == (1, 9)
    assert features.argmax() == 3
    assert math.isclose(features[0, 3], math.log1p(8) ** 2)
    assert metrics.spectral_features(draw(1, 2, 64, 64)).shape[1] == 2 * 33
    assert metrics.spectral_features(draw(1, 4, 128, 64)).shape[1] == 4 * 65


def test_the_authors_features_are_measured_from_nyquist():
    assert metrics.spectral_features(draw(1, 2, 64, 64), "authors").shape[1] == 92
    assert metrics.spectral_features(draw(1, 5, 128, 64), "authors").shape[1] == 360
    flat = metrics.spectral_features(torch.ones(1, 1, 16), "authors")
    assert flat.shape == (1, 9)
    assert flat.argmax() == 8  # wavenumber 0 is farthest from Nyquist
    pred, truth = draw(30, 1, 1, 8, 8) * 2, draw(30, 1, 1, 8, 8, seed=1)
    assert metrics.fsd(pred, truth) != metrics.fsd(pred, truth, variant="authors")
    with pytest.raises(ValueError, match=r"centred or authors"):
        metrics.fsd(pred, truth, variant="other")


def test_few_samples_are_said():
    pred, truth = draw(4, 3, 1, 16), draw(4, 3, 1, 16, seed=1)
    with pytest.warns(metrics.FewSamples, match=r"9 features from 4 trajectories"):
        metrics.fsd(pred, truth)
    with pytest.warns(metrics.FewSamples) as caught:
        metrics.fsd_curve(pred, truth)
    assert len(caught) == 1
    with pytest.raises(ValueError, match=r"at least 2"):
        metrics.fsd(pred[:1], truth[:1])


def test_fsd_of_few_samples_and_of_resamples_is_too_large():
    """Why FSD has no interval, and why values need the same number of trajectories."""
    few, many = ([draw(n, 1, 1, 32, seed=s) for s in (0, 1)] for n in (24, 800))
    value = quiet_fsd(*few)
    assert value > 10 * quiet_fsd(*many)  # the distributions are equal
    chosen = torch.randint(24, (40, 24), generator=torch.Generator().manual_seed(0))
    resampled = torch.tensor([quiet_fsd(few[0][i], few[1][i]) for i in chosen])
    assert resampled.quantile(0.025) > value
