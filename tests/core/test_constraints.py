"""Hard constraints are orthogonal projections, and hold through whole rollouts."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import seeds
from toys import frame, seeded

from biasbound.core.constraints import CONSTRAINTS, constraint, divergence
from biasbound.core.schedule import log_uniform
from biasbound.data.layout import Layout
from biasbound.flows.kolmogorov import KolmogorovSolver
from biasbound.models.correction import always
from biasbound.models.diffusion import Diffusion
from biasbound.models.direct import Direct
from biasbound.models.emulator import Emulator
from biasbound.models.normalise import Normalisation
from biasbound.registry import described, find


def layout(*grid, channels=None, boundary="periodic"):
    names = channels or tuple(f"velocity_{axis}" for axis in "xyz"[: len(grid)])
    domain = tuple((0.0, 1.0 + i) for i in range(len(grid)))
    return Layout("test", 1, 1, names, grid, 0.1, domain, (boundary,) * len(grid))


GRIDS = st.sampled_from([(8, 8), (7, 10), (4, 6, 5)])


@given(st.sampled_from([*CONSTRAINTS]), GRIDS, seeds)
def test_constraints_are_orthogonal_projections(name, grid, seed):
    a, b = torch.randn(2, 3, len(grid), *grid, generator=seeded(seed), dtype=torch.float64)
    project = constraint(name, layout(*grid))
    assert torch.allclose(project(project(a)), project(a), atol=1e-12)
    assert torch.allclose((project(a) * b).sum(), (a * project(b)).sum(), atol=1e-9)
    assert torch.allclose(project(a + 2 * b), project(a) + 2 * project(b), atol=1e-12)
    # A truth that obeys gets no worse answers.
    truth = project(b)
    assert (project(a) - truth).norm() <= (a - truth).norm()


@given(GRIDS, seeds)
def test_projections_leave_no_divergence_and_no_mean(grid, seed):
    state = 3 + torch.randn(2, len(grid), *grid, generator=seeded(seed), dtype=torch.float64)
    project = constraint("divergence-free", layout(*grid))
    made, axes = project(state), tuple(range(2, state.ndim))
    assert divergence(state, project).abs().max() > 0.1
    assert divergence(made, project).abs().max() < 1e-12 * divergence(state, project).abs().max()
    assert torch.allclose(made.mean(axes), state.mean(axes))
    assert constraint("zero-mean", layout(*grid))(state).mean(axes).abs().max() < 1e-14


def test_a_solved_velocity_is_left_as_it_is():
    """The flow's own solver keeps the divergence at zero; density beside it is not touched."""
    solver = KolmogorovSolver(16)
    velocity = solver.velocity(solver.modes(torch.randn(2, 2, 16, 16, generator=seeded()).double()))
    state = torch.cat([torch.ones(2, 1, 16, 16).double(), velocity], 1)
    domain = ((0.0, 2 * torch.pi),) * 2
    made = Layout("flow", 1, 1, ("density", "velocity_x", "velocity_y"), (16, 16), 0.1, domain, ("periodic",) * 2)
    assert torch.allclose(constraint("divergence-free", made)(state), state, atol=1e-12)


def stirring(x):
    """A step that no constraint survives."""
    return 0.5 * x.roll(1, -1) + 0.1 * torch.tanh(x.flip(1)) + 0.3


@pytest.mark.parametrize("name", ["zero-mean", "divergence-free"])
@pytest.mark.parametrize("chain", [False, True])
def test_constraints_hold_through_a_whole_rollout_in_physical_units(name, chain):
    """Channels have spreads of their own, so that a projection in the network's units would not do."""
    units, own = Normalisation((0.3, -1.0), (2.0, 0.5)), frame(channels=2)
    if chain:
        schedule = log_uniform(3, 0.1, 0.99)
        model = Diffusion(lambda z, x, s: stirring(x) + 0.1 * z, own, schedule=schedule, prediction="x0")
    else:
        model = Direct(stirring, own)
    made, grid = Emulator(model, units, ("velocity_x", "velocity_y"), 0.1), layout(8, 8)
    project, x0 = constraint(name, grid), torch.randn(3, 2, 8, 8, generator=seeded())
    frames = [
        made.rollout(x0, 5, 2, seeded(1), correct=c).states.reshape(-1, 2, 8, 8) for c in (None, always(project))
    ]
    measure = constraint("divergence-free", grid)
    before, after = (
        (divergence(f, measure) if name == "divergence-free" else f.mean((2, 3))).abs().max() for f in frames
    )
    assert before > 0.1
    assert after < 2e-5 * before


def test_constraints_are_found_by_name_and_refuse_what_they_do_not_fit():
    with pytest.raises(ValueError, match="there is no constraint 'divergence': there are zero-mean"):
        find(CONSTRAINTS, "divergence")
    for wrong in (layout(8), layout(8, 8, channels=("u",)), layout(8, 8, boundary="wall")):
        with pytest.raises(ValueError, match="one channel per axis on a periodic grid, but test has"):
            constraint("divergence-free", wrong)
    assert all(described(CONSTRAINTS).values())
