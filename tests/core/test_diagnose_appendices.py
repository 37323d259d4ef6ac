"""The paper's appendices in a diagnosis: the bound on the REB, and the own bias that the error spectrum predicts."""

import json
from dataclasses import replace

import pytest
import torch
from toys import seeded

from biasbound.core.appendix import appendices, predictions
from biasbound.core.bias import Measure, ResidualSpectrum, dominant_power
from biasbound.core.diagnose import diagnose
from biasbound.core.noise import alpha_bar
from biasbound.core.options import SearchOptions
from biasbound.core.oracle import AffineOracle, WienerOracle
from biasbound.core.schedule import log_uniform

CHAIN = log_uniform(3, 0.05, 0.9)
HOW = Measure(draws=2, generator=seeded(1))


def wiener(scale=1.0, points=64):
    k = torch.fft.fftfreq(points, 1 / points)
    return WienerOracle(scale / (1 + k**2 / 16))


def test_the_bound_of_an_affine_denoiser_has_closed_parts():
    """‖J_t‖ = κ/√ᾱ and λ_t = κ E_{t+1}/E_t; the bound holds for every pair."""
    gain, error = 0.3, 0.4
    oracle = AffineOracle(lambda s: error * s, gain)
    x, y = oracle.pairs((16, 1, 64), seeded())
    made = appendices(oracle, x, y, (), CHAIN, HOW)
    assert made.chain == CHAIN
    assert [row.sigma for row in made.bound] == list(CHAIN.sigma[:-1])
    for row, above in zip(made.bound, CHAIN.sigma[1:], strict=True):
        assert row.jacobian.mean == pytest.approx(gain / alpha_bar(row.sigma) ** 0.5, rel=1e-3)

        def clean(s):
            return (error**2 + gain**2 / alpha_bar(s)) ** 0.5 * s

        assert row.lam.mean == pytest.approx(gain * clean(above) / clean(row.sigma), rel=0.05)
        assert row.slack_min >= 0
        assert row.reb.mean <= row.bound.mean


def test_the_bound_is_about_chains_that_add_fresh_noise():
    oracle = AffineOracle(0.1, 0.3)
    made = appendices(oracle, *oracle.pairs((4, 1, 8), seeded()), (0.5,), CHAIN, replace(HOW, transition="ddim"))
    assert (made.chain, made.bound) == (None, ())
    assert list(made.predicted) == [0.5]


@pytest.mark.parametrize("sigma", [0.3, 0.7])
def test_what_the_spectrum_predicts_is_what_is_measured_where_the_theory_is_exact(sigma):
    oracle = wiener(points=256)
    x, y = oracle.pairs((400, 1, 256), seeded())
    found = predictions(oracle, x, y, [sigma], HOW)[sigma]
    E = oracle.residual_spectrum(sigma)
    assert found.ratio == pytest.approx((E.square().sum() / E.sum()).item() * alpha_bar(sigma) / sigma**2, rel=0.02)
    assert found.predicted.mean == pytest.approx(found.measured.mean, rel=0.02)
    assert list(found.spectrum) == pytest.approx(E[:129].tolist(), rel=0.25)


def test_of_two_networks_the_one_with_less_error_everywhere_is_the_more_stable():
    levels, better, worse = (0.1, 0.3, 0.7), wiener(0.2), wiener(1.0)
    found = [predictions(o, *o.pairs((64, 1, 64), seeded()), levels, HOW) for o in (better, worse)]
    for a, b in zip(*(f.values() for f in found), strict=True):
        assert a.ratio < b.ratio
        assert a.predicted.mean < b.predicted.mean
        assert a.measured.mean < b.measured.mean


def test_the_dominant_power_of_a_spectrum():
    """R of a flat spectrum is its value, R(c E) = c R(E), and without error it is 0."""
    flat, peak = torch.full((1, 8), 0.3), torch.tensor([[0.0, 2.0, 0, 0, 0, 0, 0, 2.0]])

    def spectrum(power):
        return ResidualSpectrum(0.5, power.double(), 0 * power.double(), 2, 1)

    assert dominant_power(spectrum(flat)) == pytest.approx(0.3)
    assert dominant_power(spectrum(peak)) == pytest.approx(2.0)
    assert dominant_power(spectrum(5 * peak)) == pytest.approx(10.0)
    assert dominant_power(spectrum(0 * flat)) == 0
    assert spectrum(peak).by_wavenumber() == [0, 2, 0, 0, 0]
    plane = torch.zeros(2, 4, 4)
    plane[:, 0, 1] = plane[:, 1, 0] = 3.0
    assert spectrum(plane).by_wavenumber() == pytest.approx([0, 6 / 8, 0])  # |k| = 1 and √2: 8 modes


def test_appendices_are_json_and_belong_to_the_diagnosis():
    oracle = AffineOracle(0.1, 0.01)
    x, y = oracle.pairs((8, 1, 16), seeded())
    found = diagnose(oracle, x, y, SearchOptions(levels=4))
    assert json.loads(json.dumps(found.as_dict()))["appendices"] is None
    made = appendices(oracle, x, y, found.levels, found.ladder, HOW)
    told = json.loads(json.dumps(replace(found, appendices=made).as_dict(), allow_nan=False))["appendices"]
    assert told["chain"] == list(found.ladder.sigma)
    assert [row["sigma"] for row in told["predicted"]] == list(found.levels)
    assert {"jacobian", "lam", "reb", "bound", "aligned", "slack_min"} <= {*told["bound"][0]}


@pytest.mark.parametrize(
    ("options", "stable"),
    [({}, True), ({"power": 2}, False), ({"power": 2, "tau": 1.05**2}, True), ({"statistic": "q95"}, True)],
)
def test_a_diagnosis_bounds_what_it_is_told_to_bound(options, stable):
    """κ = 0.04 is within τ = 1.05 in norms, and beyond it in squared norms."""
    oracle = AffineOracle(1.0, 0.04)
    found = diagnose(oracle, *oracle.pairs((16, 1, 64), seeded()), SearchOptions(levels=3, sigma_max=0.3, **options))
    assert (len(found.stable) == 3, found.ladder is not None) == (stable, stable)
    assert found.as_dict()["power"] == options.get("power", 1)
