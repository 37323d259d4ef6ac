import math
from functools import partial
from itertools import pairwise

import pytest
import torch
from toys import Filter, advected, seeded

from biasbound.core.denoise import EpsDenoiser, VDenoiser, X0Denoiser
from biasbound.core.noise import ShardGenerator, alpha_bar, draw, draw_index, renoise
from biasbound.core.oracle import GaussianOracle
from biasbound.core.sample import proxy_estimate, sample
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.models.losses import (
    diffusion_loss,
    full_unrolled_loss,
    proxy_unrolled_loss,
    unrolled_loss,
)


def exact(wrapper, truth):
    """A denoiser of this parameterisation whose estimate is `truth(x)` whatever its input."""

    def net(z_t, x, told):
        s = torch.sigmoid(-told).sqrt().reshape(-1, 1, 1)
        a = torch.sigmoid(told).sqrt().reshape(-1, 1, 1)
        z = truth(x)
        return wrapper(net).objective(z, (z_t - a * z) / s, a, s)

    return wrapper(net)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 0.9])
def test_the_exact_posterior_mean_is_at_the_known_minimum(sigma):
    """ε-prediction from E[y | y_t] has the loss ᾱ r²(1 − k)/σ² = k; no network can have less."""
    oracle = GaussianOracle(0.5)

    def net(z_t, x, told):
        return (z_t - math.sqrt(alpha_bar(sigma)) * oracle(z_t, x, sigma)) / sigma

    x, y = oracle.pairs((200, 1, 500), seeded())
    loss = diffusion_loss(EpsDenoiser(net), x, y, Schedule([sigma]), generator=seeded(1)).item()
    k = oracle.gain(sigma)
    assert loss == pytest.approx(k, rel=4 * math.sqrt(2 / x.numel()))
    worse = diffusion_loss(
        EpsDenoiser(lambda *a: 0.9 * net(*a)), x, y, Schedule([sigma]), generator=seeded(1)
    )
    assert worse.item() > loss


@pytest.mark.parametrize("wrapper", [EpsDenoiser, X0Denoiser, VDenoiser])
def test_an_exact_denoiser_has_no_loss(wrapper):
    frames = advected(8)
    denoiser = exact(wrapper, lambda x: x.roll(1, -1))
    x = frames[:, 0].double()
    loss = diffusion_loss(
        denoiser, x, x.roll(1, -1), log_uniform(5, 0.01, 0.9), generator=seeded()
    )
    assert loss.item() < 1e-20


def test_levels_are_drawn_uniformly_and_weights_multiply_their_level():
    y = torch.zeros(4000, 1, 2)
    schedule = log_uniform(4)
    told = []
    denoiser = X0Denoiser(lambda z_t, x, log_snr: told.append(log_snr) or torch.ones_like(z_t))
    plain = diffusion_loss(denoiser, y, y, schedule, generator=seeded())
    assert plain.item() == 1
    counts = told[0].unique(return_counts=True)[1]
    assert len(counts) == 4
    assert (counts - 1000).abs().max() < 4 * math.sqrt(4000 * 0.25 * 0.75)
    weighted = diffusion_loss(
        denoiser, y, y, schedule, generator=seeded(), weights=(4.0, 0.0, 0.0, 0.0)
    )
    top = (told[0] == told[0].max()).double().mean()
    assert weighted.item() == pytest.approx(4 * top.item())
    with pytest.raises(ValueError, match="3 weights do not fit 4"):
        diffusion_loss(denoiser, y, y, schedule, weights=(1.0, 1.0, 1.0))


@pytest.mark.parametrize("unroll", [0, 1, 3])
@pytest.mark.parametrize("n", [0, 2])
def test_the_proxy_loss_of_an_exact_denoiser_is_teacher_forcing(unroll, n):
    """An exact proxy is the next frame, so each term is L_diff on true frames: here with a loss that is not zero."""
    frames = advected(16, frames=unroll + 2, dtype=torch.float64)
    schedule = log_uniform(3, 0.1, 0.9)
    denoiser = exact(VDenoiser, lambda x: x.roll(1, -1))
    denoiser.target = lambda y, x, sigma, eps: (
        y + eps
    )  # not what the network learned: the loss is not zero
    got = proxy_unrolled_loss(
        denoiser, frames, schedule, n=n, detach=True, generator=(g := seeded(3))
    )
    expected, same = torch.zeros(()), seeded(3)
    for j, (x, y) in enumerate(pairwise(frames.unbind(1))):
        expected = expected + diffusion_loss(denoiser, x, y, schedule, generator=same)
        if j < unroll:
            for _ in range(n + 1):
                draw(y, same)  # the proxy's noise, which an exact denoiser forgets
    assert got.item() == pytest.approx(expected.item(), rel=1e-9)
    assert torch.equal(torch.randn(2, generator=g), torch.randn(2, generator=same))


def test_gradients_of_the_full_proxy_are_those_of_full_unrolling():
    """Same noise, same start: P⁽ᵀ⁾ is the chain."""
    torch.manual_seed(0)
    frames, schedule = advected(4, frames=3, dtype=torch.float64), log_uniform(4, 0.2, 0.95)
    denoiser = VDenoiser(Filter().double())
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    gradients = []
    for proxy in (True, False):
        generator = seeded(5)

        def estimate(x, y, proxy=proxy, generator=generator):
            if proxy:
                return proxy_estimate(
                    denoiser, x, y, schedule, n=schedule.top, generator=generator
                )
            start = renoise(y, schedule.sigma[-1], draw(y, generator))
            return sample(denoiser, x, schedule, start=start, generator=generator)

        loss = unrolled_loss(denoiser, frames, schedule, estimate, generator=generator)
        gradients.append(torch.autograd.grad(loss, list(denoiser.parameters())))
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)
    assert any(g.abs().max() > 1e-6 for g in gradients[0])


@pytest.mark.parametrize("loss", [proxy_unrolled_loss, full_unrolled_loss])
def test_detach_changes_the_gradient_and_not_the_value(loss):
    torch.manual_seed(0)
    frames, schedule = advected(4, frames=3, dtype=torch.float64), log_uniform(3, 0.2, 0.95)
    denoiser = VDenoiser(Filter().double())
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    values, slopes = [], []
    for detach in (False, True):
        value = loss(denoiser, frames, schedule, detach=detach, generator=seeded(1))
        values.append(value.item())
        slopes.append(torch.autograd.grad(value, denoiser.net.mix)[0])
    assert values[0] == values[1]
    assert not torch.allclose(slopes[0], slopes[1])


# --- the proxy in the network call of the loss --------------------------------------------------------


def in_turn(denoiser, frames, schedule, generator, detach=False, conditions=None):
    """L_P-UT with n = 0 by three calls of the network a frame pair, on the noises that the joined calls see."""
    levels = torch.tensor(schedule.sigma, dtype=torch.float64)
    state, total = frames[:, 0], 0
    for j, y in enumerate(frames[:, 1:].unbind(1)):
        x = state if conditions is None else torch.cat([state, conditions], 1)
        t, eps = draw_index(len(schedule), len(y), generator), draw(y, generator)
        output = denoiser.prediction(renoise(y, levels[t], eps), x, levels[t])
        total = total + (output - denoiser.target(y, x, levels[t], eps)).square().mean()
        if j + 2 < frames.shape[1]:
            shared = (t == 0).reshape(-1, 1, 1)
            noise = torch.where(shared, eps, draw(y, generator))
            state = denoiser(renoise(y, schedule.sigma[0], noise), x, schedule.sigma[0])
            state = state.detach() if detach else state
    return total


@pytest.mark.parametrize("wrapper", [EpsDenoiser, X0Denoiser, VDenoiser])
@pytest.mark.parametrize("residual", [None, 0.3])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize(("levels", "unroll", "told"), [(4, 1, 0), (4, 2, 1), (1, 2, 0)])
def test_the_joined_proxy_is_three_calls_in_turn(wrapper, residual, detach, levels, unroll, told):
    """Value and gradient, on the same noise; with one level every sample is shared."""
    torch.manual_seed(0)
    frames = advected(12, frames=unroll + 2, dtype=torch.float64)
    conditions = torch.randn(12, told, 16, dtype=torch.float64) if told else None
    schedule = log_uniform(4, 0.2, 0.95) if levels > 1 else Schedule([0.3])
    denoiser = wrapper(Filter(condition=1 + told).double(), residual)
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    generators = seeded(2), seeded(2)
    got = proxy_unrolled_loss(
        denoiser, frames, schedule, detach=detach, conditions=conditions, generator=generators[0]
    )
    expected = in_turn(denoiser, frames, schedule, generators[1], detach, conditions)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
    slopes = [torch.autograd.grad(loss, list(denoiser.parameters())) for loss in (got, expected)]
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert slopes[0][0].abs().max() > 1e-3
    assert torch.equal(*(torch.randn(2, generator=g) for g in generators))


def test_the_network_is_asked_once_a_frame_and_no_row_twice():
    frames, schedule, asked = advected(64, frames=4), log_uniform(4, 0.1, 0.9), []

    def net(z_t, x, told):
        asked.append((z_t, told))
        return torch.zeros_like(z_t)

    proxy_unrolled_loss(VDenoiser(net), frames, schedule, generator=seeded())
    rows = [len(z_t) for z_t, _ in asked]
    assert rows[2:] == [64]
    for z_t, told in asked[:2]:
        drawn, lowest = told[:64], told.max()
        assert (told[64:] == lowest).all()
        assert len(z_t) == 128 - (drawn == lowest).sum()
        assert len(z_t.unique(dim=0)) == len(z_t)
    assert all(64 < count < 128 for count in rows[:2])


def test_shared_noise_leaves_the_expected_loss_and_gradient():
    """Against unrolling with independent noise, over many draws and within their errors."""
    torch.manual_seed(0)
    frames = advected(64, frames=3, dtype=torch.float64)
    schedule = log_uniform(2, 0.4, 0.8)  # half of all samples are shared
    net = Filter().double()
    torch.nn.init.normal_(net.mix, std=0.2)
    gain = torch.ones((), dtype=torch.float64, requires_grad=True)
    denoiser = VDenoiser(lambda z_t, x, told: gain * net(z_t, x, told))

    def independent(seed):
        g = seeded(seed)
        estimate = partial(proxy_estimate, denoiser, schedule=schedule, generator=g)
        return unrolled_loss(denoiser, frames, schedule, estimate, generator=g)

    def shared(seed):
        return proxy_unrolled_loss(denoiser, frames, schedule, generator=seeded(seed))

    seen = []
    for loss, seeds in ((shared, range(120)), (independent, range(120, 240))):
        values = [loss(seed) for seed in seeds]
        slopes = [torch.autograd.grad(value, gain)[0] for value in values]
        seen.append(torch.stack([torch.stack(values).detach(), torch.stack(slopes)]))
    error = (sum(s.var(1) for s in seen) / 120).sqrt()
    distance = (seen[0].mean(1) - seen[1].mean(1)).abs()
    assert (distance < 4 * error).all()
    assert (error < 0.03 * seen[1].mean(1).abs()).all()  # fine enough to see a difference


# --- one batch, divided among processes ---------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1])
def test_shards_of_a_batch_meet_the_noise_of_the_whole(n):
    torch.manual_seed(0)
    frames, schedule = advected(8, frames=3, dtype=torch.float64), log_uniform(4)
    denoiser = VDenoiser(Filter().double())
    torch.nn.init.normal_(denoiser.net.mix, std=0.2)
    whole = proxy_unrolled_loss(denoiser, frames, schedule, n=n, generator=seeded(9)).item()
    parts = [
        proxy_unrolled_loss(
            denoiser, part, schedule, n=n, generator=ShardGenerator(rank, 2, 9)
        ).item()
        for rank, part in enumerate(frames.chunk(2))
    ]
    assert sum(parts) / 2 == pytest.approx(whole, rel=1e-12)


def test_the_share_of_the_lowest_level():
    generator = torch.Generator().manual_seed(0)
    t = draw_index(5, 40_000, generator, lowest=0.6)
    shares = torch.bincount(t, minlength=5) / len(t)
    torch.testing.assert_close(shares, torch.tensor([0.6, 0.1, 0.1, 0.1, 0.1]), atol=0.01, rtol=0)
    assert set(draw_index(1, 8, generator, lowest=0.6).tolist()) == {0}
    with pytest.raises(ValueError, match="between 0 and 1"):
        draw_index(5, 8, generator, lowest=1.5)


def test_a_focused_loss_is_the_mean_of_its_levels_in_their_shares():
    denoiser, schedule = EpsDenoiser(lambda z_t, x, log_snr: 0.3 * z_t), Schedule((0.1, 0.5, 0.9))
    x = y = torch.randn(20_000, 1, 4, generator=torch.Generator().manual_seed(1))

    def loss(levels, lowest=None):
        generator = torch.Generator().manual_seed(2)
        return diffusion_loss(denoiser, x, y, Schedule(levels), generator=generator, lowest=lowest)

    each = torch.stack([loss((s,)) for s in schedule.sigma])
    expected = 0.6 * each[0] + 0.2 * each[1] + 0.2 * each[2]
    torch.testing.assert_close(loss(schedule.sigma, 0.6), expected, rtol=0.02, atol=0)
    assert not torch.isclose(loss(schedule.sigma), expected, rtol=0.02)
