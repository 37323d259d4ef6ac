"""Scores of masked fields are those of the valid points; fields may have three dimensions."""

import math
import warnings

import numpy as np
import pytest
import torch

from biasbound.data.layout import Layout
from biasbound.metrics import (
    FewSamples,
    Scene,
    derivative,
    energy_spectrum,
    fsd,
    radial_spectrum,
    rank_histogram,
    shells,
)
from biasbound.metrics.arrays import at_points
from biasbound.metrics.rows import About, select
from biasbound.metrics.score import score, score_steps

MASK = np.ones((5, 6), dtype=bool)
MASK[1:3, 2:4] = MASK[4] = False
ABOUT = About("toy", "me")


def example(grid=(5, 6), channels=1, members=3):
    random = np.random.default_rng(0)
    truth = random.normal(2, 1, (4, 11, channels, *grid)).astype(np.float32)
    return truth + random.normal(0, 0.3, (members, *truth.shape)).astype(np.float32), truth


def scored(prediction, truth, mask=None, **facts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamples)
        rows = score(Scene(prediction, truth, dt=0.5, mask=mask, spread=[2.0] * truth.shape[2], **facts), ABOUT)
    return {(row.metric, row.step): row for row in rows}


def test_scores_of_a_masked_field_are_those_of_its_valid_points():
    """All of them but spectra, which need a grid."""
    made, true = example()
    found, alone = scored(made, true, MASK), scored(made[..., MASK], true[..., MASK])
    assert found.keys() == alone.keys()
    pointwise = {key for key in found if not key[0].startswith(("fsd", "energy"))}
    assert {found[key] for key in pointwise} == {alone[key] for key in pointwise}
    assert found["mse", 1].value == pytest.approx(
        np.square(made[0, :, 0] - true[:, 0], dtype=np.float64)[..., MASK].mean(), rel=1e-6
    )


@pytest.mark.parametrize("junk", [1e5, math.nan, math.inf])
@pytest.mark.parametrize("of", [np.asarray, torch.from_numpy])
def test_what_stands_under_the_mask_changes_no_score(junk, of):
    made, true = example(channels=2)
    clean = scored(made, true, MASK)
    assert all(row.value is not None for row in clean.values())
    other = [of(np.where(MASK, field, np.float32(junk))) for field in (made, true)]
    assert scored(*other, MASK) == clean
    kept = rank_histogram(at_points(made, MASK), at_points(true, MASK))
    assert rank_histogram(*(at_points(field, of(MASK)) for field in other)) == kept
    steps = [select(score_steps(a[0], b, ABOUT, None, MASK), metric="one_step_mse") for a, b in (other, (made, true))]
    assert steps[0] == steps[1]


def test_a_mask_that_hides_nothing_is_none():
    made, true = example()
    whole = np.ones_like(MASK)
    assert Scene(made, true, 0.5, mask=whole).mask is None
    assert scored(made, true, whole) == scored(made, true)
    scene = Scene(made, true, 0.5)
    assert scene.points is scene.grids is scene


def test_a_valid_point_that_breaks_is_a_break():
    made, true = example()
    made[0, 1, 6, 0, 0, 0] = np.nan
    found = scored(made, true, MASK)
    assert (found["broken", None].value, found["broken_step", None].value) == (1, 7)
    assert found["mse", 11].value is None


def test_spectra_see_truth_and_prediction_through_one_window():
    """A perfect prediction has no distance, and a constant offset under the mask is no difference."""
    _, true = example(channels=2)
    scene = Scene(np.where(MASK, true, 9)[None], np.where(MASK, true, -9), 0.5, mask=MASK).grids
    assert np.array_equal(scene.first, scene.truth)
    assert np.allclose(scene.truth[..., ~MASK], true[..., MASK].mean((0, 1, 3))[:, None], rtol=1e-5)


def test_a_mask_must_fit_and_has_no_vorticity():
    made, true = example(channels=2)
    layout = Layout("toy", 4, 12, ("u", "v"), (5, 6), 0.5, ((0.0, 1.0),) * 2, ("periodic", "wall"))
    assert Scene.on(layout, made, true).correlate == "vorticity"
    assert Scene.on(layout, made, true, mask=MASK).correlate == "field"
    with pytest.raises(ValueError, match="correlate the field"):
        Scene.on(layout, made, true, mask=MASK, correlate="vorticity")
    with pytest.raises(ValueError, match=r"shape of the grid, \(5, 6\)"):
        Scene(made, true, 0.5, mask=MASK.T)
    with pytest.raises(ValueError, match="no valid point"):
        Scene(made, true, 0.5, mask=~np.ones_like(MASK))


# --- three dimensions -------------------------------------------------------------------------


def test_a_wave_in_three_dimensions_is_in_its_shell():
    grid, waves = (8, 6, 10), (2, 1, 2)
    places = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) / n for n in grid), indexing="ij")
    field = torch.cos(2 * math.pi * sum(k * x for k, x in zip(waves, places, strict=True)))
    spectrum = radial_spectrum(field, 3, tuple(1 / n for n in grid))
    assert spectrum.argmax() == 3  # |(2, 1, 2)|
    assert float(spectrum[3]) == pytest.approx(0.5)
    assert shells(grid).shape == grid


def test_parsevals_sum_holds_in_three_dimensions():
    field = torch.randn(2, 3, 4, 5, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = field.square().sum(1).flatten(1).mean(1) / 2
    assert torch.allclose(energy_spectrum(field, 3, (0.3, 1.0, 2.0)).sum(-1), expected)


def test_derivatives_along_mixed_boundaries():
    """x along an open axis and a wave along a periodic one, both exact."""
    x = torch.linspace(0, 1, 5, dtype=torch.float64).reshape(-1, 1, 1)
    y = torch.arange(8, dtype=torch.float64).reshape(-1, 1) / 8
    z = torch.arange(6, dtype=torch.float64)
    field = x * torch.sin(2 * math.pi * y) + z**2
    along_x = derivative(field, -3, periodic=False, spacing=0.25)
    along_y = derivative(field, -2, periodic=True, spacing=0.125)
    along_z = derivative(field, -1, periodic=False, spacing=1.0)
    assert torch.allclose(along_x, torch.sin(2 * math.pi * y).expand_as(field), atol=1e-12)
    assert torch.allclose(along_y, (2 * math.pi * x * torch.cos(2 * math.pi * y)).expand_as(field), atol=1e-12)
    assert torch.allclose(along_z, (2 * z).expand_as(field), atol=1e-12)


@pytest.mark.parametrize("variant", ["centred", "authors"])
def test_fsd_in_three_dimensions(variant):
    """No distance from itself; translations, which spectra do not see, are at no distance either."""
    _, truth = example((4, 4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewSamples)
        assert fsd(np.roll(truth, 1, -2), truth, 3, variant) == pytest.approx(0, abs=1e-4)
        assert fsd(3 * truth, truth, 3, variant) > 0.1


def test_every_metric_scores_three_dimensions_with_and_without_a_mask():
    made, true = example((4, 3, 5), channels=3)
    layout = Layout("toy", 4, 12, ("u", "v", "w"), (4, 3, 5), 0.5, ((0.0, 1.0),) * 3, ("periodic", "wall", "open"))
    mask = np.random.default_rng(2).random((4, 3, 5)) > 0.3
    for hidden in (None, mask):
        scene = Scene.on(layout, made, true, mask=hidden)
        assert scene.correlate == "field"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FewSamples)
            assert all(row.value is not None for row in score(scene, ABOUT))
    with pytest.raises(ValueError, match="in the plane"):
        Scene.on(layout, made, true, correlate="vorticity")
