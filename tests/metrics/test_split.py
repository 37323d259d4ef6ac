"""The split of a rollout's error: its parts add up, and a solver makes no error of its own."""

import numpy as np
import pytest
import torch

from biasbound.data.trajectories import Trajectories
from biasbound.flows.flow import source
from biasbound.flows.kolmogorov import KolmogorovSolver, initial_modes
from biasbound.flows.reference import lifted, reference
from biasbound.metrics.rows import About, select
from biasbound.metrics.split import Parts, split
from biasbound.models.emulator import Emulator
from biasbound.models.model import Frame, Model
from biasbound.models.normalise import Normalisation
from biasbound.study.stages.split import split_rows


def values(results):
    about = About("toy", "any")
    return {(r.name, r.step): about.row(r.name, r.value).value for r in results}


def fields(*seeds, shape=(3, 2, 2, 8)):
    return [np.random.default_rng(seed).standard_normal(shape) for seed in seeds]


def test_the_parts_add_up_to_the_total():
    parts, spread = Parts(*fields(0, 1, 2, 3, 4)), (0.5, 2.0)
    found = values(split(parts, (1, 7), spread))
    for i, step in enumerate((1, 7)):
        gap = (parts.truth - parts.prediction)[:, i] / np.array(spread)[:, None]
        assert found["split_total", step] == pytest.approx((gap**2).mean())
        whole = sum(found[f"split_{part}", step] for part in ("drift", "own", "cross"))
        assert whole == pytest.approx(found["split_total", step], rel=1e-12)
        ratio = np.sqrt(found["split_own", step] / found["split_true", step])
        assert found["split_ratio", step] == pytest.approx(ratio)


def test_a_state_without_a_reference_has_no_finite_split():
    prediction, truth, there, own, follow = fields(0, 1, 2, 3, 4)
    there[1, 0] = np.nan
    found = values(split(Parts(prediction, truth, there, own, follow), (1, 2)))
    assert found["split_own", 1] is None
    assert found["split_own", 2] > 0


# --- the flows' own solvers ----------------------------------------------------------------------------


def made(name, stride=1, space=1, **settings):
    """A small data set as a study makes it."""
    flow = source(name, "smoke", "test", 0, trajectories=3, **settings)
    told = {**flow.provenance(), "generator": type(flow).__name__}
    layout, block = flow.layout, flow.block(0, 3)
    data = Trajectories.from_array(
        block.fields,
        dt=layout.dt,
        domain=layout.domain,
        channels=layout.channels,
        provenance=told,
        parameters=block.parameters,
    )
    return data.stride(time=stride, space=space)


KS = [{}, {"stride": 3}, {"jitter": 0.1}, {"space": 2, "points": 128}]


@pytest.mark.parametrize("how", KS)
def test_the_reference_of_kuramoto_sivashinsky_is_the_next_frame(how):
    data = made("ks", frames=8, warmup=40, **how)
    frames = data.read(0, 3, slice(0, 2)).astype(np.float64)
    found = reference(data)(frames[:, 0], np.arange(3))
    error = np.abs(found - frames[:, 1]).max()
    assert error < 2e-4 * np.abs(frames[:, 1] - frames[:, 0]).max()  # of values that were stored in float32


def test_block_means_of_resolved_waves_are_undone():
    solver = KolmogorovSolver(48, nu=1e-2)
    w = initial_modes(np.random.default_rng(0), solver)[None]
    w[:, 8:] = 0  # waves that a grid of 16 does not resolve
    w[:, :, 8:-7] = 0
    fine = lifted(solver.velocity(w, 16), 48)
    assert torch.allclose(fine, solver.velocity(w), atol=1e-10)
    assert torch.allclose(lifted(solver.velocity(w, 24), 48), solver.velocity(w), atol=1e-10)
    assert torch.allclose(lifted(solver.velocity(w, 48), 48), solver.velocity(w), atol=1e-10)


def test_the_reference_of_kolmogorov_flow_is_the_next_frame_up_to_what_a_mean_hides():
    whole, means = (made("kolmogorov", frames=4, grid=grid, points=48, nu=0.05) for grid in (48, 24))
    for data, least in ((whole, 1e-5), (means, 0.02)):
        frames = data.read(0, 3, slice(0, 2)).astype(np.float64)
        error = reference(data)(frames[:, 0], np.arange(3)) - frames[:, 1]
        moved = frames[:, 1] - frames[:, 0]
        assert np.sqrt((error**2).mean() / (moved**2).mean()) < least
    with pytest.raises(ValueError, match=r"leave data.stride_space at 1"):
        reference(whole.stride(space=2))


def test_other_data_have_no_reference_and_lost_states_none_either():
    data = made("ks", frames=3, warmup=2)
    lost = data.read(0, 3, slice(0, 1))[:, 0].astype(np.float64)
    lost[1, 0, 5] = np.nan
    found = reference(data)(lost, np.arange(3))
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()
    assert reference(Trajectories.from_array(lost[:, None], dt=0.1)) is None


class Solver(Model):
    """An emulator that is the solver, with an error of its own at every step."""

    noisy, trained = False, False

    def __init__(self, data, error):
        super().__init__(None, Frame(len(data.channels)))
        self.step, self.error = reference(data), error

    def loss(self, batch, generator): ...

    def advance(self, x, generator=None):
        rows = np.zeros(len(x), dtype=np.int64)
        return torch.from_numpy(self.step(x.double().numpy(), rows)).to(x) + self.error


@pytest.mark.parametrize("error", [0.0, 1e-2])
@pytest.mark.parametrize("name", ["ks", "kolmogorov"])
def test_an_emulator_that_is_the_solver_inherits_all_of_its_error(name, error):
    data = made(name, frames=6, **({"warmup": 40} if name == "ks" else {}))
    c = len(data.channels)
    emulator = Emulator(Solver(data, error), Normalisation((0.0,) * c, (1.0,) * c), data.channels, data.dt)
    start = data.read(0, 3, slice(0, 1))[:, 0] + 0.1  # a state that is not the truth's
    rolled = emulator.rollout(torch.from_numpy(start).float(), 5).states[0].numpy()
    rows = split_rows(emulator, data, rolled, (2, 5), About(name, "solver"), "cpu")
    for step in (2, 5):
        value = {r.metric: r.value for r in select(rows, step=step)}
        assert value["split_own"] == pytest.approx(error**2, rel=1e-3, abs=1e-10)
        assert value["split_true"] == pytest.approx(error**2, rel=1e-3, abs=1e-10)
        assert value["split_drift"] + value["split_own"] + value["split_cross"] == pytest.approx(value["split_total"])
        if not error:
            assert value["split_drift"] == pytest.approx(value["split_total"], rel=1e-4)
        else:
            assert value["split_ratio"] == pytest.approx(1.0, rel=1e-3)
