"""Figures show what the run holds, and draw broken rollouts as far as they go."""

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_study import METHODS, NFE, put

from biasbound.report import figures_flow, figures_rows, figures_search
from biasbound.report.figures import FIGURES, save_figures
from biasbound.report.staircase import staircase, tau_edges
from biasbound.report.study import read_study
from biasbound.report.style import look, spread


def line(axes, label):
    """The data of a named line."""
    (found,) = [drawn for drawn in axes.lines if drawn.get_label() == label]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def panel(figure, title):
    return next(a for a in figure.axes if a.get_title().split("\n")[0].split(",")[0] == title)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_draws_a_whole_run(study, name):
    assert all(axes.has_data() for axes in FIGURES[name](study).axes if axes.axison)


def test_a_figure_is_saved_twice(study, tmp_path):
    png, pdf = save_figures(study, tmp_path, ["correlation"])
    assert png.read_bytes().startswith(b"\x89PNG")
    assert pdf.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize("name", ["samples", "rollouts", "spectra"])
def test_flows_in_two_dimensions(flow, name):
    figure = FIGURES[name](read_study(flow))
    figure.draw_without_rendering()
    assert figure.axes


def test_contributions_are_the_stored_biases(study):
    figure = figures_search.contributions(study)
    for model in study.models[1:]:
        for key, name in (("reb", "inference (REB)"), ("own", "own prediction")):
            x, y = line(panel(figure, model.label), name)
            assert list(x) == [r.sigma for r in model.bias]
            assert list(y) == [getattr(r, key) for r in model.bias]
        top = line(panel(figure, model.label), "two steps")[1][-1]
        assert np.isnan(top)  # the top level has no level above


def test_schedules_show_the_last_time_in_full(study):
    figure = figures_search.schedules(study)
    for model in study.models[1:]:
        for name in ("clean", "inference"):
            _, y = line(panel(figure, model.label), f"{name} input")
            assert list(y) == [getattr(r, name) for r in model.chain[-1].rows]
        assert len(panel(figure, model.label).lines) == 2 * 3


def test_landscape_marks_the_ladders_levels(study):
    axes = figures_search.landscape(study).axes[0]
    for search in study.searches:
        x, y = line(axes, f"{search.label}: ladder")
        assert tuple(x) == search.schedule.sigma
        assert list(y) == [search.landscape.clean[s][0] for s in x]


def test_thresholds_hold_the_points_in_their_box(study):
    search = study.searches[0]
    points = search.exploration.points
    for tau in figures_search.TAUS:
        for sigma, errors in figures_search.crossings(search, tau, 0.01):
            inside = [p.clean for p in points if p.sigma == sigma and abs(p.own - tau) <= 0.01]
            assert sorted(errors) == sorted(inside)
    everything = figures_search.crossings(search, 1.0, np.inf)
    assert sum(len(errors) for _, errors in everything) == len(points)


def test_ladder_steps_lie_on_its_jumps(study):
    for axes, search in zip(figures_search.ladder(study).axes[:2], study.searches, strict=True):
        assert axes.get_title().startswith(search.label)
        levels = search.landscape.levels
        cells = [levels.index(s) for s in search.schedule.sigma]
        x, y = line(axes, "ladder")
        corners = set(zip(x, y, strict=True))
        assert all((start, to) in corners for to, start in pairwise(cells))
        shown = axes.images[0].get_array()
        for to, start in pairwise(cells):
            assert shown[to, start] == pytest.approx(search.landscape.bias(levels[to], levels[start]) - 1)  # fmt: skip


def test_staircase_walks_from_level_to_level():
    assert staircase([1, 3, 4]) == ([1, 3, 3, 4, 4], [1, 1, 3, 3, 4])


def test_tau_edges_divide_and_vanish():
    levels = [0.1, 0.2, 0.3]
    bias = {(0.1, 0.2): 1.0, (0.1, 0.3): 2.0, (0.2, 0.3): 1.0}
    edges = list(tau_edges(levels, lambda to, start: bias[to, start], 1.5))
    assert edges == [((1.5, 1.5), (-0.5, 0.5)), ((1.5, 2.5), (0.5, 0.5))]
    assert list(tau_edges(levels, lambda to, start: bias[to, start], 3.0)) == []


def test_curves_are_means_over_seeds(copy):
    rows = (copy / "results.jsonl").read_text().splitlines()
    doubled = [json.loads(r) for r in rows]
    doubled = [r | {"seed": 1, "value": 3 * r["value"]} for r in doubled]
    put(copy / "results.jsonl", "\n".join([*rows, *map(json.dumps, doubled)]) + "\n")
    study = read_study(copy)
    curves = {"fsd": study.series("fsd"), "errors": study.error_series()}
    for name, found in curves.items():
        x, y = line(FIGURES[name](study).axes[0], "linear")
        one = found[study.dataset, "linear", 0]
        assert list(x) == [s.step for s in one]
        np.testing.assert_allclose(y, [2 * s.value for s in one])


def test_calls_and_correlation_show_the_tables_numbers(study):
    drawn = {
        container.get_label(): (container[0].get_xdata()[0], container[0].get_ydata()[0])
        for container in figures_rows.calls(study).axes[0].containers
    }
    assert drawn == {
        label: (NFE[label], pytest.approx(1.1 * (end / 100) ** 2))
        for label, end in METHODS.items()
    }
    axes = figures_rows.correlation(study).axes[0]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == study.labels
    for container, end in zip(axes.containers, METHODS.values(), strict=True):
        assert container[0].get_xdata()[0] == 8.0 / end
        ((left, right),) = [bar.get_segments()[0][:, 0] for bar in container[2]]
        assert (left, right) == pytest.approx((6.0 / end, 9.0 / end))


def test_gradients_and_training_are_the_stored_curves(study):
    axes = panel(figures_search.gradients(study), "linear")
    x, y = line(axes, "proxy and full unrolling")
    rows = [r for r in study.models[1].gradients if isinstance(r.n, int)]
    assert list(x) == [r.n for r in rows]
    assert list(y) == [r.to_full for r in rows]
    x, y = line(figures_flow.training(study).axes[0], "unet")
    assert list(y) == [r["loss"] for r in study.models[0].log]


def test_rollouts_draw_truth_prediction_and_their_difference(study):
    figure = figures_flow.rollouts(study, 1)
    images = [a.images[0].get_array() for a in figure.axes if a.images and a.get_title()]
    truth = study.truth(1, 40, 1)[0, :, 0].T
    np.testing.assert_array_equal(images[0], truth)
    np.testing.assert_allclose(images[2], images[1] - images[0], atol=1e-6)


def test_spectra_leave_out_what_broke(copy):
    file = copy / "05-rollout/linear/seed-0/prediction.npy"
    broken = np.load(file)
    broken[0, 0, -1] = np.nan
    np.save(file, broken)
    study = read_study(copy)
    found = figures_flow.last_spectra(study)
    assert all(np.isfinite(e).all() for e in found.values())
    rest = np.concatenate([broken[0, 1:, -1], broken[1, :, -1]])
    np.testing.assert_allclose(found["linear"], study.energy(rest))
    assert found["linear"].sum() == pytest.approx(np.mean(rest**2) / 2, rel=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_a_rollout_that_broke_down_is_drawn_as_far_as_it_goes(run, flow, tmp_path, rank):
    copy = shutil.copytree(run if rank == 1 else flow, tmp_path / "run")
    file = copy / "05-rollout/unet/seed-0/prediction.npy"
    broken = np.load(file)
    broken[:, :, 4], broken[:, :, 5:] = np.inf, np.nan
    np.save(file, broken)
    study = read_study(copy)
    figure = figures_flow.rollouts(study)
    figure.draw_without_rendering()
    shown = [np.ma.filled(a.images[0].get_array(), np.nan) for a in figure.axes if a.images]
    assert any(np.isnan(picture).any() for picture in shown)
    assert "unet" not in figures_flow.last_spectra(study)


def test_an_unknown_standard_error_draws_no_band(copy):
    path = copy / "06-evaluate/linear/seed-0/bias.json"
    rows = json.loads(path.read_text())
    put(path, [row | {"own_stderr": np.inf, "reb": np.inf} for row in rows])
    figures_search.contributions(read_study(copy)).draw_without_rendering()


def test_figures_leave_no_global_state(study):
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures_search.ladder(study)
    assert dict(matplotlib.rcParams) == before


def test_every_figure_has_its_paragraph():
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    assert set(re.findall(r"^`biasbound report RUN --figure (\w+)`: ", text, re.MULTILINE)) == set(
        FIGURES
    )


@given(st.lists(st.floats(-0.5, 1.5), max_size=30).map(sorted))
def test_names_at_the_ends_of_lines_keep_their_distance(heights):
    moved = spread(heights, 0.05)
    assert moved == sorted(moved)
    gap = min([0.05, *(1 / (len(moved) - 1) for _ in moved[1:])])
    assert all(high - low >= gap - 1e-9 for low, high in pairwise(moved))
    assert all(height <= 1 for height in moved)


def test_no_two_of_many_lines_look_alike():
    looks = [look(i) for i in range(64)]
    assert len({(kind["color"], kind["marker"]) for kind in looks}) == 64
