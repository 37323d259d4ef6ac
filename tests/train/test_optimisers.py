"""What the optimisers do to vectors, matrices and kernels."""

import copy

import pytest
import torch
from torch import nn

from biasbound.registry import find
from biasbound.train.optimisers import OPTIMISERS, Muon, Soap
from biasbound.train.state import pack, unpack

BETAS = (0.95, 0.95)


def parameter(*shape, seed=0):
    made = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return nn.Parameter(made)


def gradients(parameters, updates, seed=1):
    """The same random gradients for everybody, one list per update."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(updates):
        yield [torch.randn(p.shape, dtype=p.dtype, generator=generator) for p in parameters]


def follow(optimiser, parameters, given):
    for grads in given:
        for p, g in zip(parameters, grads, strict=True):
            p.grad = g
        optimiser.step()
    return [p.detach().clone() for p in parameters]


def minimise(make, start, loss, updates):
    p = nn.Parameter(start.clone())
    optimiser, losses = make([p]), []
    for _ in range(updates):
        optimiser.zero_grad()
        value = loss(p)
        value.backward()
        optimiser.step()
        losses.append(value.item())
    return torch.tensor(losses, dtype=torch.float64)


def rotation(n, seed):
    return torch.linalg.qr(parameter(n, n, seed=seed).detach()).Q


@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_complex_number_is_two_real_ones(name):
    """As in the Fourier layers of a neural operator: the same updates as on its real and imaginary parts."""
    real = [parameter(4, 3, 5, 2), parameter(6, 2, seed=2)]
    whole = [nn.Parameter(torch.view_as_complex(p.detach().clone())) for p in real]
    given = list(gradients(real, 25))
    make = find(OPTIMISERS, name)
    parts = follow(make(real, 0.01, 0.1), real, given)
    made = follow(make(whole, 0.01, 0.1), whole, [[torch.view_as_complex(g) for g in grads] for grads in given])
    assert all(torch.allclose(torch.view_as_real(a), b, rtol=1e-12) for a, b in zip(made, parts, strict=True))


# --- laws of SOAP --------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "betas"), [("soap", BETAS), ("muon", (0.9, 0.999))])
def test_vectors_get_the_update_of_adam(name, betas):
    ours, theirs = ([parameter(7), parameter(3), parameter(7, seed=2)] for _ in range(2))
    given = list(gradients(ours, 35))
    adam = torch.optim.AdamW(theirs, lr=0.01, betas=betas, weight_decay=0.1)
    for a, b in zip(
        follow(find(OPTIMISERS, name)(ours, 0.01, 0.1), ours, given), follow(adam, theirs, given), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [Soap, Muon])
def test_a_kernel_is_the_matrix_out_times_rest(make):
    kernel, matrix = parameter(4, 1, 3, 2), nn.Parameter(parameter(4, 1, 3, 2).flatten(1).detach())
    given = list(gradients([kernel], 25))
    (a,) = follow(make([kernel], 0.01), [kernel], given)
    (b,) = follow(make([matrix], 0.01), [matrix], [[g.flatten(1)] for (g,) in given])
    assert torch.equal(a.flatten(1), b)


@pytest.mark.parametrize("make", [Soap, Muon])
def test_what_is_stacked_moves_as_it_would_alone(make):
    every = [parameter(5, 4, seed=i) for i in range(3)] + [parameter(4, 5), parameter(6)]
    given = list(gradients(every, 25))
    alone = [
        follow(make([p], 0.01), [p], [[grads[i]] for grads in given])[0] for i, p in enumerate(copy.deepcopy(every))
    ]
    torch.testing.assert_close(follow(make(every, 0.01), every, given), alone)


def test_a_parameter_that_joins_late_starts_its_own_count():
    early, late = parameter(5, 4), parameter(5, 4, seed=1)
    given = list(gradients([early], 25))
    alone = copy.deepcopy(late)
    (expected,) = follow(Soap([alone], 0.01), [alone], given)
    both = Soap([early, late], 0.01)
    follow(both, [early], gradients([early], 13, seed=5))
    for (g,) in given:
        early.grad, late.grad = torch.ones_like(early), g
        both.step()
    torch.testing.assert_close(late.detach(), expected)


def based(p, left, right, lr=0.05):
    """SOAP on one matrix, with this basis to start from instead of the identity."""
    optimiser = Soap([p], lr)
    p.grad = torch.zeros_like(p)
    optimiser.step()
    state = optimiser.state_dict()
    kept = state["state"][0]
    kept["step"], kept["basis_l"], kept["basis_r"] = torch.tensor(0), left, right
    optimiser.load_state_dict(state)
    return optimiser


def test_a_quadratic_is_followed_as_adam_does_in_its_eigenbasis():
    """½ Σ h_i (W_ii − t_i)² behind two rotations: Adam's curve on the vector of the W_ii."""
    n = 5
    h, t = torch.logspace(3, 0, n, dtype=torch.float64), 1 + parameter(n).detach().abs()
    left, right = rotation(n, 1), rotation(n, 2)

    def vector(w):
        return (h * (w - t) ** 2).sum() / 2

    expected = minimise(lambda p: torch.optim.Adam(p, lr=0.05, betas=BETAS), torch.zeros_like(t), vector, 60)
    measured = minimise(
        lambda p: based(p[0], left, right),
        torch.zeros(n, n, dtype=torch.float64),
        lambda p: vector((left.T @ p @ right).diagonal()),
        60,
    )
    torch.testing.assert_close(measured, expected, rtol=1e-6, atol=0)


def test_rotating_a_problem_and_the_basis_leaves_the_loss_curve_unchanged():
    scale = torch.logspace(0, 2, 20, dtype=torch.float64).reshape(4, 5)
    target, left, right = parameter(4, 5, seed=3).detach(), rotation(4, 1), rotation(5, 2)
    mixed = parameter(20, 20, seed=4).detach()

    def plain(p):
        return (mixed @ (scale * (p - target)).flatten()).square().mean()

    start = torch.zeros_like(target)
    a = minimise(lambda p: Soap(p, 0.01), start, plain, 45)
    b = minimise(lambda p: based(p[0], left, right, 0.01), start, lambda p: plain(left.T @ p @ right), 45)
    torch.testing.assert_close(a, b, rtol=1e-6, atol=0)
    assert a[-1] < a[0] / 2


def test_the_basis_reaches_the_eigenvectors_of_both_averages():
    p, left, right = parameter(4, 5), rotation(4, 1), rotation(5, 2)
    scale = torch.logspace(0, -1, 4, dtype=torch.float64)[:, None] * torch.logspace(0, -1, 5, dtype=torch.float64)
    round_ = [[left @ (scale * g) @ right.T] for (g,) in gradients([p], 10)]
    optimiser = Soap([p])
    follow(optimiser, [p], round_ * 40)
    for side in "lr":
        cov, basis = (optimiser.state[p][f"{kind}_{side}"] for kind in ("cov", "basis"))
        eigenvalues = torch.linalg.eigvalsh(cov).flip(0)
        expected = eigenvalues.diag()
        torch.testing.assert_close(basis.T @ cov @ basis, expected, rtol=0.01, atol=1e-4)


def test_rounding_errors_of_the_gradients_stay_small():
    """Gradients of rank one leave most of a basis open; two processes must still agree on it."""
    exact, rounded = (nn.Parameter(parameter(8, 6).detach().float()) for _ in range(2))
    start = exact.detach().clone()
    column, row = parameter(8, 1, seed=1).detach().float(), torch.ones(1, 6)
    given = [[column * row * (1 + 0.1 * g)] for (g,) in gradients([row], 60)]
    (a,) = follow(Soap([exact], 0.01), [exact], given)
    noise = gradients([exact], 60, seed=9)
    nearby = [[g * (1 + 1e-7 * e)] for (g,), (e,) in zip(given, noise, strict=True)]
    (b,) = follow(Soap([rounded], 0.01), [rounded], nearby)
    assert (a - b).norm() < 1e-3 * (a - start).norm()


def test_a_long_side_is_cut_into_matrices_of_their_own():
    """5 × 6 in blocks of at most 3: rows 0–2 and 3–4 (with a row of zeros), columns 0–2 and 3–5."""
    whole, rows, columns = parameter(5, 6), (slice(0, 3), slice(3, 5)), (slice(0, 3), slice(3, 6))
    places = [(i, j) for i in rows for j in columns]
    pieces = [nn.Parameter(whole.detach()[at].clone()) for at in places]
    given = list(gradients([whole], 34))
    (made,) = follow(Soap([whole], 0.01, block=3), [whole], given)
    parts = follow(Soap(pieces, 0.01), pieces, [[g[at] for at in places] for (g,) in given])
    for at, part in zip(places, parts, strict=True):
        torch.testing.assert_close(made[at], part, rtol=1e-9, atol=1e-12)


def test_kernels_with_blocks_go_on_from_a_checkpoint_to_the_same_bits():
    every = [parameter(4, 1, 3, 3, seed=i) for i in range(2)] + [parameter(7, 4), parameter(5)]
    given = list(gradients(every, 33))
    straight = copy.deepcopy(every)
    expected = follow(Soap(straight, 0.01, block=4), straight, given)
    first = Soap(every, 0.01, block=4)
    follow(first, every, given[:17])
    second = Soap(every, 0.01, block=4)
    unpack(pack(nn.ParameterList(every), None, first), nn.ParameterList(every), None, second)
    assert all(map(torch.equal, follow(second, every, given[17:]), expected))


def test_a_state_with_other_blocks_is_refused_in_a_sentence():
    p = parameter(5, 6)
    one, other = Soap([p], block=6), Soap([p], block=3)
    follow(one, [p], gradients([p], 1))
    with pytest.raises(ValueError, match=r"cut long matrices otherwise.*begin again"):
        other.load_state_dict({**one.state_dict(), "param_groups": other.state_dict()["param_groups"]})


# --- laws of Muon --------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_muon_is_that_of_torch(shape):
    """Which computes in bfloat16: three digits of each update."""
    ours, theirs = parameter(*shape), parameter(*shape)
    start = ours.detach().clone()
    given = list(gradients([ours], 5))
    other = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    a, b = (follow(made, [p], given)[0] - start for made, p in ((Muon([ours], 0.01, 0.1), ours), (other, theirs)))
    assert (a - b).norm() < 0.03 * b.norm()


def test_muon_makes_every_direction_count_alike():
    p = parameter(4, 6)
    start = p.detach().clone()
    steep = torch.logspace(0, 2, 4, dtype=torch.float64)[:, None] * parameter(4, 6, seed=1).detach()
    (moved,) = follow(Muon([p], 1.0), [p], [[steep]])
    spectrum = torch.linalg.svdvals((moved - start) / (0.2 * 6**0.5))
    assert 0.5 < spectrum.min() <= spectrum.max() < 1.3


# --- all of them ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPTIMISERS)
def test_zero_gradients_move_nothing_but_the_decay(name):
    every = [parameter(4, 3), parameter(4, 1, 3, 2), parameter(5), parameter(1, 3)]
    start = [p.detach().clone() for p in every]
    optimiser = find(OPTIMISERS, name)(every, 0.1, 0.0 if name == "adam" else 0.5)
    ended = follow(optimiser, every, [[torch.zeros_like(p) for p in every]] * 12)
    factor = 1 if name == "adam" else (1 - 0.1 * 0.5) ** 12
    torch.testing.assert_close(ended, [factor * p for p in start])


@pytest.mark.parametrize("name", ["soap", "muon", "adamw"])
def test_weight_decay_does_not_enter_the_direction(name):
    given = list(gradients([parameter(4, 3)], 1)) * 2
    plain, decayed = (parameter(4, 3) for _ in range(2))
    start = plain.detach().clone()
    follow(find(OPTIMISERS, name)([plain], 0.1, 0.0), [plain], given[:1])
    follow(find(OPTIMISERS, name)([decayed], 0.1, 0.5), [decayed], given[:1])
    torch.testing.assert_close(plain - decayed, 0.1 * 0.5 * start)


def test_a_gradient_that_is_not_a_number_is_left_to_the_loss_to_show():
    p = parameter(4, 3)
    (ended,) = follow(Soap([p]), [p], [[torch.full_like(p, torch.nan)]] * 12)
    assert ended.isnan().all()


def test_soap_needs_far_fewer_updates_than_adam():
    """A regression whose inputs and outputs are correlated."""
    skew_in, skew_out = (torch.logspace(0, 1.5, 12).diag() @ rotation(12, s).float() for s in (1, 2))
    x = torch.randn(256, 12, generator=torch.Generator().manual_seed(0)) @ skew_in
    losses = {
        name: minimise(
            lambda p, name=name: find(OPTIMISERS, name)(p, 0.02, 0.0),
            torch.zeros(12, 12),
            lambda p: ((x @ p.T - x.roll(1, 1)) @ skew_out).square().mean(),
            150,
        )[-1]
        for name in ("soap", "adam")
    }
    assert losses["soap"] < losses["adam"] / 4
