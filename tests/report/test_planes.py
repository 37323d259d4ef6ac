"""Planes of a volume: where they lie, what they show, and the page's choice among them."""

import re

import numpy as np
import pytest
from browsing import set_value
from report_study import fabricate

from biasbound.data.trajectories import Trajectories
from biasbound.report import figures_flow
from biasbound.report.page import write_page
from biasbound.report.pictures import draw
from biasbound.report.planes import planes, quantities
from biasbound.report.study import read_study

TURN = 2 * np.pi
VELOCITY = ["velocity_x", "velocity_y", "velocity_z"]


def beltrami(*grid):
    """The flow of Arnold, Beltrami and Childress (1, 1, 3, *N), which is its own curl."""
    x, y, z = np.meshgrid(*[TURN * np.arange(n) / n for n in grid], indexing="ij")
    return np.stack([np.sin(z) + np.cos(y), np.sin(x) + np.cos(z), np.sin(y) + np.cos(x)])[None, None]


def data(fields, **facts):
    return Trajectories.from_array(fields, dt=0.1, domain=[(0.0, TURN)] * (fields.ndim - 3), **facts)


def test_in_every_plane_the_vorticity_is_the_curls_component_across_it():
    fields = beltrami(8, 10, 12)
    shown = planes(data(fields, channels=VELOCITY))
    assert [plane.place for plane in shown] == ["z = 3.14", "y = 3.14", "x = 3.14"]
    for plane, across, middle in zip(shown, (2, 1, 0), (6, 5, 4), strict=True):
        ((name, omega),) = plane.quantities(fields[0]).items()
        assert name == f"vorticity ω_{'xyz'[across]}"
        assert np.allclose(omega[0], np.take(fields[0, 0, across], middle, across), atol=1e-12)


def test_an_axis_that_goes_down_is_drawn_upwards():
    fields = beltrami(6, 7, 4)[..., 1].astype(np.float32)
    up = data(fields)
    axis = up.coordinates[1][::-1]
    down = Trajectories.open(
        up.layout, data(fields[..., ::-1]).reader, name="d", coordinates=(up.coordinates[0], axis)
    )
    for name, values in quantities(up, fields[0]).items():
        assert np.array_equal(values, quantities(down, fields[0, ..., ::-1])[name])


def test_a_plane_that_is_all_masked_gives_way_to_the_nearest_other():
    mask = np.ones((4, 5, 9), dtype=bool)
    mask[..., 3:6] = False
    volume = data(np.ones((1, 2, 1, 4, 5, 9)), mask=mask)
    last, *others = planes(volume)
    assert last.cut == {2: 2}
    assert last.hidden == ""
    assert {plane.hidden for plane in others} == {"masked points"}
    assert draw(volume).legends == []


def test_what_has_no_value_is_named_in_pictures():
    mask = np.arange(33)[:, None] + np.arange(49) > 20
    fields = np.random.default_rng(0).normal(size=(1, 3, 2, 33, 49))
    fields[..., ~mask] = np.nan
    masked = data(fields, mask=mask, channels=VELOCITY[:2])
    (legend,) = draw(masked).legends
    assert [text.get_text() for text in legend.get_texts()] == ["masked points"]
    assert [*quantities(masked, fields[0])] == VELOCITY[:2]  # no vorticity, which is not known at the mask's edge


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    folder = tmp_path_factory.mktemp("volume") / "run"
    return read_study(fabricate(folder, rank=3, points=12, frames=5, methods=["unet"]))


@pytest.mark.parametrize("name", ["samples", "rollouts", "spectra"])
def test_figures_of_a_volume_say_where_it_is_cut(volume, name):
    figure = getattr(figures_flow, name)(volume)
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert name == "spectra" or any(label.endswith("at z = 3.14") for label in labels)


def test_the_player_shows_the_plane_that_is_chosen(volume, visitor, tmp_path):
    visitor.visit(write_page(volume, tmp_path / "index.html"))
    tab, frame = visitor.tab, 2
    set_value(tab, "#p-frame", frame)
    (model,) = volume.models
    for number, plane in enumerate(planes(volume.test)):
        tab.select_option("#p-plane", index=number)
        truth, guess = volume.truth(1, 4)[0], model.rollout.prediction[0, 0]
        name, true = next(iter(plane.quantities(truth).items()))
        error = (plane.quantities(guess)[name] - true)[frame]
        told = re.search(r"RMS error ([\d.]+)", tab.inner_text("#panels .told >> nth=1"))
        assert float(told[1]) == pytest.approx(float(np.sqrt(np.mean(error**2))), rel=0.02)
        assert (
            tab.evaluate("[...document.querySelectorAll('#panels .plane canvas')].map((c) => [c.width, c.height])")
            == [[*plane.shape]] * 3
        )
        assert name in tab.inner_text("#player .scale")
        assert f"{plane.names[0]} to the right" in tab.inner_text("#player .scale")
        assert "masked" not in tab.inner_text("#player .scale")
    assert visitor.said == []


def test_the_page_names_masked_points(flow, visitor, tmp_path):
    made = read_study(flow)
    mask = np.ones(made.test.layout.grid, dtype=bool)
    mask[3:6, 2:9] = False
    object.__setattr__(made.test, "mask", mask)
    visitor.visit(write_page(made, tmp_path / "index.html"))
    assert "masked points" in visitor.tab.inner_text("#player .scale")
    assert visitor.said == []
