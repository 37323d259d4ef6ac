"""Figures show what the run holds, and draw broken rollouts as far as they go."""

import json
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from report_study import METHODS, NFE, TAU, put

from biasbound.report import figures_flow, figures_growth, figures_rows, figures_search
from biasbound.report.figures import FIGURES, save_figures
from biasbound.report.searches import FrontPoint
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
    points = study.searches[0].exploration.points
    for tau in figures_search.TAUS:
        for sigma, errors in figures_search.crossings(points, tau, 0.01):
            inside = [p.clean for p in points if p.sigma == sigma and abs(p.own - tau) <= 0.01]
            assert sorted(errors) == sorted(inside)
    everything = figures_search.crossings(points, 1.0, np.inf)
    assert sum(len(errors) for _, errors in everything) == len(points)


def test_thresholds_put_the_searches_of_a_method_together_with_a_cross_for_each_tau(study):
    first, *others = (s for s in study.searches if s.exploration.points)
    lower = min(s for s in first.exploration.levels if s not in first.exploration.solved)
    looser = replace(first.exploration, tau=1.1, solved={**first.exploration.solved, lower: None})
    again = replace(first, seed=1, label=f"{first.label} @ other", exploration=looser)
    both = replace(study, searches=(first, again, *others))
    figure = figures_search.thresholds(both, width=0.05)
    assert [a.get_title() for a in figure.axes] == [first.label, *(s.label for s in others)]
    crosses = [line(figure.axes[0], f"lowest stable level at τ = {tau}")[0] for tau in (1.03, 1.1)]
    assert [list(x) for x in crosses] == [[min(first.exploration.solved)], [lower]]
    assert "± 0.05" in figure.axes[0].get_legend().get_texts()[-1].get_text()


def test_growth_draws_what_was_tried_and_what_joined(study):
    search = next(s for s in study.searches if s.growth)
    found = search.growth
    levels, errors = figures_growth.growth(study).axes[:2]
    tried = [d for d in levels.lines if d.get_marker() == "s"]
    ringed = [d for d in tried if d.get_markeredgewidth() > 1]
    assert len(tried) == sum(len(r.levels) - 1 for r in found.rounds[1:])
    within = [
        (one.update, level.sigma)
        for number, one in enumerate(found.rounds)
        for level in found.tried(number)
        if level.own <= TAU and level.two_step <= TAU
    ]  # in the fabricated growth every lower level is the better one
    assert [d.get_xdata()[0] for d in ringed] == [update for update, _ in within]
    np.testing.assert_allclose([d.get_ydata()[0] for d in ringed], [figures_growth.height_of(s) for _, s in within])
    joined = figures_growth.joined_at(found)
    assert list(joined) == list(found.rounds[-1].ladder)
    rungs = [d for d in levels.lines if d.get_linestyle() == "-" and len(d.get_xdata()) == 2]
    assert [tuple(d.get_xdata()) for d in rungs] == [(start, found.updates) for start in joined.values()]
    for sigma, points in figures_growth.level_errors(found).items():
        x, y = line(errors, f"{sigma:.4g}")
        assert list(zip(x, y, strict=True)) == [(update, error) for update, error, _ in points]


def test_feasible_levels_are_those_within_the_statistic_that_is_bounded(study):
    found = next(s.growth for s in study.searches if s.growth)
    last = len(found.rounds) - 1
    for statistic in ("mean", "pooled", "q95"):
        for tau in (1.0, 1.02, 1.05, 1.5):
            bounded = replace(found, statistic=statistic, tau=tau, tau_own=tau)
            worst = {s.sigma: max(s.bias("own", statistic), s.bias("two_step", statistic)) for s in found.tried(last)}
            within = [s.sigma for s in found.tried(last) if bounded.feasible(last, s)]
            assert within == [s for s, bias in worst.items() if bias <= tau]
    worse = replace(found.tried(last)[0], clean=1.0)
    assert not replace(found, tau=99.0, tau_own=99.0).feasible(last, worse)  # than the frontier


def test_front_marks_the_greedy_and_the_chosen_ladder(study):
    search = next(s for s in study.searches if s.front)
    (axes,) = figures_growth.front(study).axes
    points = {p.calls: p.mean for p in search.front.front}
    assert dict(zip(*(column.tolist() for column in axes.containers[0][0].get_data()), strict=True)) == points
    (chosen,), (error,) = line(axes, "the study's ladder")
    assert (chosen, error) == (len(search.schedule), points[len(search.schedule)])
    measured = replace(search, front=replace(search.front, greedy=FrontPoint(2, (0.1, 0.9), 0.5, 0.1)))
    (axes,) = figures_growth.front(replace(study, searches=(measured,))).axes
    assert [column.tolist() for column in line(axes, "greedy ladder")] == [[2], [0.5]]


def test_ladder_steps_lie_on_its_jumps(study):
    drawn = figures_search.ladder(study).axes[: len(study.searches)]
    for axes, search in zip(drawn, study.searches, strict=True):
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
    assert figures_search.staircase([1, 3, 4]) == ([1, 3, 3, 4, 4], [1, 1, 3, 3, 4])


def test_tau_edges_divide_and_vanish():
    levels = [0.1, 0.2, 0.3]
    bias = {(0.1, 0.2): 1.0, (0.1, 0.3): 2.0, (0.2, 0.3): 1.0}
    edges = list(figures_search.tau_edges(levels, lambda to, start: bias[to, start], 1.5))
    assert edges == [((1.5, 1.5), (-0.5, 0.5)), ((1.5, 2.5), (0.5, 0.5))]
    assert list(figures_search.tau_edges(levels, lambda to, start: bias[to, start], 3.0)) == []


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
    assert drawn == {label: (NFE[label], pytest.approx(1.1 * (end / 100) ** 2)) for label, end in METHODS.items()}
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


def test_a_figure_takes_its_option_by_name(study, tmp_path, monkeypatch):
    taken = []
    monkeypatch.setitem(FIGURES, "thresholds", lambda study, width=0.01: taken.append(width) or Figure())
    for wish in ("thresholds", "thresholds=0.05"):
        save_figures(study, tmp_path, [wish])
    assert taken == [0.01, 0.05]
    for wish, problem in (
        ("thresholds=wide", "positive number"),
        ("thresholds=-1", "positive"),
        ("ladder=2", "option"),
    ):
        with pytest.raises(ValueError, match=problem):
            save_figures(study, tmp_path, [wish])


def test_every_figure_has_its_paragraph():
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text()
    assert set(re.findall(r"^`biasbound report RUN --figure (\w+)`: ", text, re.MULTILINE)) == set(FIGURES)


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
