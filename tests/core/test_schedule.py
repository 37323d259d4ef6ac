import copy
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import ladders

from biasbound.core import schedule as schedules
from biasbound.core.noise import alpha_bar, log_snr
from biasbound.core.schedule import Schedule


@given(ladders)
def test_schedule_round_trips_exactly(tmp_path_factory, ladder):
    schedule = Schedule(ladder)
    path = tmp_path_factory.mktemp("schedule") / "s.json"
    noted = Schedule(schedule.sigma, {"method": "greedy", "tau": 1.05, "forced": [[0.1, 0.2]], "biases": [1 / 3]})
    noted.save(path)
    back = Schedule.load(path)
    assert back.sigma == schedule.sigma
    assert back.meta == noted.meta
    assert back == schedule
    assert hash(back) == hash(schedule)
    assert len(back) == len(schedule.sigma) == back.top + 1
    assert copy.deepcopy(back).meta == noted.meta  # by the protocol that worker processes use


@pytest.mark.parametrize(
    ("sigma", "complaint"),
    [
        ([], "at least one"),
        ([0.0, 0.5], "σ_0 = 0.0"),
        ([0.5, 1.0], "σ_1 = 1.0.*end the schedule lower"),
        ([-0.1], "σ_0 = -0.1"),
        ([0.5, 0.5], "must increase.*σ_0 = 0.5 and σ_1 = 0.5"),
        ([0.9, 0.1], "must increase"),
        ([0.1, math.nan], "finite.*σ_1"),
        ([math.inf], "finite"),
        (["a"], "list of numbers"),
    ],
)
def test_schedule_refuses_and_says_why(sigma, complaint):
    with pytest.raises(ValueError, match=complaint):
        Schedule(sigma)


def test_schedule_is_a_value():
    schedule = Schedule([0.1, 0.5], {"tau": 1.05})
    with pytest.raises(AttributeError):
        schedule.sigma = (0.2,)
    schedule.meta["tau"] = 2
    assert schedule.meta == {"tau": 1.05}
    assert Schedule(torch.tensor([0.1, 0.5], dtype=torch.float64)) == schedule
    with pytest.raises(ValueError, match="JSON"):
        Schedule([0.5], {"bad": math.nan})


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "Invalid JSON"),
        ('{"format": "biasbound.schedule", "ver', "Invalid JSON"),
        ("[0.1, 0.2]", "not a schedule file"),
        ('{"format": "other"}', "not a schedule file"),
        ('{"format": "biasbound.schedule", "version": 9}', "version 9"),
        ('{"format": "biasbound.schedule", "version": 1}', '"sigma"'),
        ('{"format": "biasbound.schedule", "version": 1, "sigma": [0.5, NaN]}', "finite"),
        ('{"format": "biasbound.schedule", "version": 1, "sigma": [0.5, "x"]}', "list of numbers"),
        ('{"format": "biasbound.schedule", "version": 1, "sigma": [0.5], "meta": 3}', '"meta"'),
    ],
)
def test_damaged_schedule_files_are_refused_by_name(tmp_path, content, complaint):
    path = tmp_path / "damaged.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=complaint) as refused:
        Schedule.load(path)
    assert "damaged.json" in str(refused.value)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "s.json"
    Schedule([0.5]).save(path)
    before = path.read_bytes()
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        Schedule([0.1, 0.2]).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]
    with pytest.raises(ValueError, match="does not exist"):
        Schedule([0.5]).save(tmp_path / "nowhere" / "s.json")


# The figures of the baselines' source: the lowest level and the signal that is left at the top, for T = 20.
@pytest.mark.parametrize(
    ("make", "sigma_0", "alpha_bar_T"),
    [(schedules.linear, 0.0500, 2.0e-3), (schedules.cosine, 0.0894, 6.1e-7), (schedules.sigmoid, 0.0864, 1.3e-15)],
)
def test_baseline_constants(make, sigma_0, alpha_bar_T):
    schedule = make(20)
    assert len(schedule) == 20
    assert schedule.sigma[0] == pytest.approx(sigma_0, abs=5e-5)
    assert alpha_bar(schedule.sigma[-1]) == pytest.approx(alpha_bar_T, rel=0.03)


@pytest.mark.parametrize("make", [schedules.linear, schedules.cosine, schedules.sigmoid])
@given(T=st.integers(20, 300))
def test_baselines_have_T_levels(make, T):
    assert len(make(T)) == T


@pytest.mark.parametrize("T", [10, 12, 15])
def test_a_baseline_that_reaches_one_says_how_to_cap_it(T):
    with pytest.raises(ValueError, match="pass sigma_max"):
        schedules.sigmoid(T)
    schedule = schedules.sigmoid(T, sigma_max=schedules.SIGMA_MAX)
    assert schedule.sigma[-1] == schedules.SIGMA_MAX
    assert schedule.meta["capped"] == schedules.SIGMA_MAX


def test_capping_touches_only_levels_above_the_cap():
    full = schedules.cosine(20)
    capped = full.capped(0.99)
    assert capped.sigma[:-1] == tuple(s for s in full.sigma if s < 0.99)
    assert capped.sigma[-1] == 0.99
    assert capped == schedules.cosine(20, sigma_max=0.99)
    assert schedules.linear(20).capped(0.9999) == schedules.linear(20)


@given(st.integers(1, 60), st.floats(1e-6, 0.1), st.floats(0.2, 1 - 1e-9))
def test_log_uniform_is_equally_spaced_in_its_variable(T, low, high):
    for over, variable in (("sigma", math.log), ("ratio", lambda s: -log_snr(s) / 2)):
        schedule = schedules.log_uniform(T, low, high, over)
        assert len(schedule) == T
        assert schedule.sigma[0] == low
        if T > 1:
            assert schedule.sigma[-1] == high
            marks = torch.tensor([variable(s) for s in schedule.sigma], dtype=torch.float64)
            assert torch.allclose(marks.diff(), marks.diff().mean(), rtol=1e-6, atol=1e-6)


def test_a_grid_in_the_ratio_leaves_no_hole_at_the_top():
    """The reason for the default: in log σ the last step of a 40-level grid spans half of the signal."""
    largest = {
        over: max(b**2 - a**2 for a, b in zip(s.sigma, s.sigma[1:], strict=False))
        for over in ("sigma", "ratio")
        for s in [schedules.log_uniform(40, 1e-4, 0.999, over)]
    }
    assert largest["sigma"] > 0.35
    assert largest["ratio"] < 0.2


@pytest.mark.parametrize(
    "call", [lambda: schedules.linear(0), lambda: schedules.log_uniform(0), lambda: schedules.cosine(-1)]
)
def test_a_schedule_without_levels_is_refused(call):
    with pytest.raises(ValueError, match=r"T ≥ 1|at least one"):
        call()


def test_schedule_file_is_plain_json(tmp_path):
    schedules.linear(5).save(tmp_path / "s.json")
    content = json.loads((tmp_path / "s.json").read_text())
    assert content["sigma"] == list(schedules.linear(5).sigma)
    assert content["meta"]["method"] == "linear"
