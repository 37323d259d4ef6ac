"""The own bias that the error spectrum predicts."""

import pytest
import torch
from hypothesis import given
from strategies import fields, seeds, shapes
from toys import exact, seeded

from biasbound.core import bias
from biasbound.core.bias import Measure, own_bias
from biasbound.core.noise import alpha_bar
from biasbound.core.oracle import WienerOracle


def decaying(*n):
    k = torch.meshgrid(*(torch.fft.fftfreq(m, 1 / m) for m in n), indexing="ij")
    return 1 / (1 + sum(a**2 for a in k) / 64)


@pytest.mark.parametrize("sigma", [0.3, 0.7])
def test_the_residual_spectrum_of_the_wiener_oracle(sigma):
    oracle = WienerOracle(decaying(32))
    x, y = oracle.pairs((60_000, 1, 32), seeded())
    spectrum = bias.residual_spectrum(oracle, x, y, sigma, Measure(draws=1, batch_size=20_000, generator=seeded(1)))
    assert torch.allclose(spectrum.power[0], oracle.residual_spectrum(sigma), rtol=0.02)
    worst = ((spectrum.power[0] - oracle.residual_spectrum(sigma)).abs() / spectrum.stderr[0]).max()
    assert worst < 4.5  # 32 wavenumbers


@pytest.mark.parametrize("n", [(2048,), (48, 48)])
@pytest.mark.parametrize("sigma", [0.3, 0.7])
def test_own_bias_of_the_wiener_oracle_is_what_its_spectrum_predicts(n, sigma):
    oracle = WienerOracle(decaying(*n))
    x, y = oracle.pairs((200, 1, *n), seeded())
    spectrum = bias.residual_spectrum(oracle, x, y, sigma, Measure(generator=seeded(1)))
    predicted = bias.predicted_own_bias(spectrum)
    measured = own_bias(oracle, x, y, sigma, Measure(shared=True, power=2, generator=seeded(2)))
    E, c = oracle.residual_spectrum(sigma), alpha_bar(sigma) / sigma**2
    closed = (1 + 2 * c * (E**2).sum() / E.sum() + c**2 * (E**3).sum() / E.sum()).item()
    assert measured.mean == pytest.approx(closed, rel=0.02)
    assert predicted.mean == pytest.approx(closed, rel=0.02)
    assert measured.mean > 1.2  # the level is unstable enough for the comparison to mean something


def test_less_error_means_less_bias_whatever_its_shape():
    """R(cE) = c R(E): uniform rescaling of the error spectrum lowers the predicted bias too."""
    E = decaying(64)[None]
    bias_of = lambda c: bias.predicted_own_bias(bias.ResidualSpectrum(0.5, c * E, 0 * E, 2, 1)).mean
    assert bias_of(0.1) < bias_of(0.5) < bias_of(1.0)
    assert bias_of(0.0) == 1


@given(shapes, seeds)
def test_the_residual_spectrum_holds_all_of_the_error(shape, seed):
    """Parseval: Σ_k E(k) is the mean squared Euclidean norm."""
    x, y = fields(shape, torch.float64, seed, 2)
    spectrum = bias.residual_spectrum(exact, x, y, 0.5, Measure(draws=2))
    assert spectrum.power.sum().item() == pytest.approx((x - y).flatten(1).square().sum(1).mean().item())
