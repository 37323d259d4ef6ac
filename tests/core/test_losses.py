import math
from functools import partial

import pytest
import torch
from strategies import signal_and_noise
from toys import Filter, advected, seeded, stirred

from biasbound.core.denoise import PREDICTIONS, NetDenoiser
from biasbound.core.losses import (
    aside,
    diffusion_loss,
    full_unrolled_loss,
    loss_and_proxy,
    proxy_unrolled_loss,
    unrolled,
)
from biasbound.core.noise import Streams, alpha_bar, draw, draw_index, renoise
from biasbound.core.oracle import GaussianOracle
from biasbound.core.sample import proxy_estimate, sample
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.core.target import PLAIN, residual


def follow(x, y):
    """The answer takes the place of the present state; what only informs stays."""
    return torch.cat([y, x[:, y.shape[1] :]], 1)


def windows(count, targets, told=0):
    """(x, targets) of advected waves, with `told` channels that only inform."""
    x, *rest = advected(count, frames=targets + 1, dtype=torch.float64).unbind(1)
    return torch.cat([x, torch.randn(count, told, 16, generator=seeded(8), dtype=torch.float64)], 1), rest


def trained_a_little(prediction="v", condition=1, target=PLAIN):
    return NetDenoiser(stirred(Filter(condition=condition).double()), prediction, target)


def exact(prediction, truth):
    """A denoiser of this prediction whose estimate is `truth(x)` whatever its input."""

    def net(z_t, x, told):
        a, s = signal_and_noise(told, z_t)
        z = truth(x)
        rule = PREDICTIONS[prediction]
        z_t = z_t / rule.shown(torch.ones_like(z_t), a, s)  # behind the gate
        return rule.objective(z, (z_t - a * z) / s, a, s)

    return NetDenoiser(net, prediction)


@pytest.mark.parametrize("sigma", [0.1, 0.5, 0.9])
def test_the_exact_posterior_mean_is_at_the_known_minimum(sigma):
    """ε-prediction from E[y | y_t] has the loss ᾱ r²(1 − k)/σ² = k; no network can have less."""
    oracle = GaussianOracle(0.5)

    def net(z_t, x, told):
        return (z_t - math.sqrt(alpha_bar(sigma)) * oracle(z_t, x, sigma)) / sigma

    x, y = oracle.pairs((200, 1, 500), seeded())
    loss = diffusion_loss(NetDenoiser(net), x, y, Schedule([sigma]), generator=seeded(1)).item()
    assert loss == pytest.approx(oracle.gain(sigma), rel=4 * math.sqrt(2 / x.numel()))
    worse = NetDenoiser(lambda *a: 0.9 * net(*a))
    assert diffusion_loss(worse, x, y, Schedule([sigma]), generator=seeded(1)).item() > loss


@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_an_exact_denoiser_has_no_loss(prediction):
    x, (y,) = windows(8, 1)
    denoiser = exact(prediction, lambda x: x.roll(1, -1))
    assert diffusion_loss(denoiser, x, y, log_uniform(5, 0.01, 0.9), generator=seeded()).item() < 1e-20


def test_levels_are_drawn_alike():
    y, told = torch.zeros(4000, 1, 2), []
    denoiser = NetDenoiser(lambda z_t, x, log_snr: told.append(log_snr) or torch.ones_like(z_t), "x0")
    assert diffusion_loss(denoiser, y, y, log_uniform(4), generator=seeded()).item() == 1
    counts = told[0].unique(return_counts=True)[1]
    assert len(counts) == 4
    assert (counts - 1000).abs().max() < 4 * math.sqrt(4000 * 0.25 * 0.75)


def test_a_focused_loss_is_the_mean_of_its_levels_in_their_shares():
    denoiser, schedule = NetDenoiser(lambda z_t, x, log_snr: 0.3 * z_t), Schedule((0.1, 0.5, 0.9))
    x = y = torch.randn(20_000, 1, 4, generator=seeded(1))

    def loss(levels, share=None):
        return diffusion_loss(denoiser, x, y, Schedule(levels), generator=seeded(2), share=share)

    each = torch.stack([loss((s,)) for s in schedule.sigma])
    expected = 0.6 * each[0] + 0.2 * each[1] + 0.2 * each[2]
    torch.testing.assert_close(loss(schedule.sigma, 0.6), expected, rtol=0.02, atol=0)
    assert not torch.isclose(loss(schedule.sigma), expected, rtol=0.02)


# --- unrolling ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("targets", [1, 2, 4])
@pytest.mark.parametrize("n", [0, 2])
def test_the_proxy_loss_of_an_exact_denoiser_is_teacher_forcing(targets, n):
    """An exact proxy is the next frame, so each term is L_diff on true frames: here with a loss that is not zero."""
    x, wanted = windows(16, targets)
    schedule = log_uniform(3, 0.1, 0.9)
    denoiser = exact("v", lambda x: x.roll(1, -1))
    denoiser.objective = lambda y, x, sigma, eps: y + eps  # not what the network learned: the loss is not zero
    got = proxy_unrolled_loss(denoiser, x, wanted, schedule, follow, n=n, detach=True, generator=(g := seeded(3)))
    expected, same = torch.zeros(()), seeded(3)
    for j, y in enumerate(wanted):
        before, last = x if j == 0 else wanted[j - 1], y is wanted[-1]
        term = diffusion_loss if last or n else lambda *args, **more: loss_and_proxy(*args, **more)[0]
        expected = expected + term(denoiser, before, y, schedule, generator=same)
        for _ in range(0 if last or n == 0 else n + 1):
            draw(y, same)  # the proxy's noise, which an exact denoiser forgets
    assert got.item() == pytest.approx(expected.item(), rel=1e-9)
    assert torch.equal(torch.randn(2, generator=g), torch.randn(2, generator=same))


@pytest.mark.parametrize("transition", ["renoise", "ddpm", "ddim"])
def test_gradients_of_the_full_proxy_are_those_of_full_unrolling(transition):
    """Same noise, same start: P⁽ᵀ⁾ is the chain, of whatever transition."""
    x, targets = windows(4, 2)
    schedule, denoiser = log_uniform(4, 0.2, 0.95), trained_a_little()
    last = partial(diffusion_loss, denoiser, schedule=schedule)

    def full(generator):
        def inner(x, y):
            loss = last(x, y, generator=generator)
            start = renoise(y, schedule.sigma[-1], draw(y, generator))
            return loss, sample(denoiser, x, schedule, start=start, generator=generator, transition=transition)

        return unrolled(x, targets, follow, inner, partial(last, generator=generator))

    top = {"n": schedule.top, "transition": transition}
    losses = proxy_unrolled_loss(denoiser, x, targets, schedule, follow, generator=seeded(5), **top), full(seeded(5))
    gradients = [torch.autograd.grad(loss, list(denoiser.parameters())) for loss in losses]
    for a, b in zip(*gradients, strict=True):
        assert torch.equal(a, b)
    assert any(g.abs().max() > 1e-6 for g in gradients[0])


@pytest.mark.parametrize("loss", [proxy_unrolled_loss, full_unrolled_loss])
def test_detach_changes_the_gradient_and_not_the_value(loss):
    x, targets = windows(4, 2)
    schedule, denoiser = log_uniform(3, 0.2, 0.95), trained_a_little()
    values = [loss(denoiser, x, targets, schedule, follow, detach=d, generator=seeded(1)) for d in (False, True)]
    slopes = [torch.autograd.grad(value, denoiser.net.mix)[0] for value in values]
    assert values[0].item() == values[1].item()
    assert not torch.allclose(slopes[0], slopes[1])


# --- the proxy in the network call of the loss --------------------------------------------------------


def in_turn(denoiser, x, targets, schedule, generator, detach=False):
    """L_P-UT with n = 0 by a call of the network for every estimate, on the levels and noises that the joined calls see."""
    levels, count, total = torch.tensor(schedule.sigma, dtype=torch.float64), len(schedule), 0

    def error(y, t, eps):
        output = denoiser.output(renoise(y, levels[t], eps), x, levels[t])
        return (output - denoiser.objective(y, x, levels[t], eps)).square().flatten(1).mean(1)

    for y in targets[:-1]:
        part = aside(1 / count)
        t = draw_index(count, len(y), generator, [1 - part, *[part / max(count - 1, 1)] * (count - 1)])
        eps, fresh = draw(y, generator), draw(y, generator)
        weight = (t > 0) * (1 - 1 / count) / (part or 1)
        total = total + (error(y, 0 * t, eps) / count + weight * error(y, t, fresh)).mean()
        state = denoiser(renoise(y, schedule.sigma[0], eps), x, schedule.sigma[0])
        x = follow(x, state.detach() if detach else state)
    t, eps = draw_index(count, len(y), generator), draw(y, generator)
    return total + error(targets[-1], t, eps).mean()


@pytest.mark.parametrize("prediction", PREDICTIONS)
@pytest.mark.parametrize("target", [PLAIN, residual(0.3)], ids=["plain", "residual"])
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize(("levels", "targets", "told"), [(4, 2, 0), (4, 3, 1), (1, 3, 0)])
def test_the_joined_proxy_is_three_calls_in_turn(prediction, target, detach, levels, targets, told):
    """Value and gradient, on the same noise; with one level every sample is shared."""
    x, wanted = windows(12, targets, told)
    schedule = log_uniform(4, 0.2, 0.95) if levels > 1 else Schedule([0.3])
    denoiser = trained_a_little(prediction, 1 + told, target)
    generators = seeded(2), seeded(2)
    got = proxy_unrolled_loss(denoiser, x, wanted, schedule, follow, detach=detach, generator=generators[0])
    expected = in_turn(denoiser, x, wanted, schedule, generators[1], detach)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)
    slopes = [torch.autograd.grad(loss, list(denoiser.parameters())) for loss in (got, expected)]
    for a, b in zip(*slopes, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    assert slopes[0][0].abs().max() > 1e-3
    assert torch.equal(*(torch.randn(2, generator=g) for g in generators))


@pytest.mark.parametrize("share", [None, 0.6, (0.4, 0.3, 0.2, 0.1)], ids=str)
def test_the_network_is_asked_once_per_target_and_no_row_twice(share):
    """Every sample at the lowest level, and a part of them at the others, in their shares."""
    (x, targets), schedule, asked = windows(600, 3), log_uniform(4, 0.1, 0.9), []

    def net(z_t, x, told):
        asked.append((z_t, told))
        return torch.zeros_like(z_t)

    proxy_unrolled_loss(NetDenoiser(net, "v"), x, targets, schedule, follow, generator=seeded(), share=share)
    lowest, *above = share if isinstance(share, tuple) else [share or 0.25] + [(1 - (share or 0.25)) / 3] * 3
    assert [len(z_t) for z_t, _ in asked] == pytest.approx([*[600 * (1 + aside(lowest))] * 2, 600], abs=1)
    for z_t, told in asked[:2]:
        assert (told[:600] == told.max()).all()
        found = [int((told[600:] == level).sum()) for level in told[600:].unique().flip(0)]
        assert found == pytest.approx([600 * aside(lowest) * p / (1 - lowest) for p in above], abs=1)
        assert len(z_t.unique(dim=0)) == len(z_t)


def test_shared_noise_leaves_the_expected_loss_and_gradient():
    """Against unrolling with independent noise, over many draws and within their errors."""
    x, targets = windows(64, 2)
    schedule = log_uniform(2, 0.4, 0.8)
    net = stirred(Filter().double())
    gain = torch.ones((), dtype=torch.float64, requires_grad=True)
    denoiser = NetDenoiser(lambda z_t, x, told: gain * net(z_t, x, told), "v")

    def independent(generator):
        loss = partial(diffusion_loss, denoiser, schedule=schedule, generator=generator)
        proxy = partial(proxy_estimate, denoiser, schedule=schedule, generator=generator)
        return unrolled(x, targets, follow, lambda x, y: (loss(x, y), proxy(x, y)), loss)

    def shared(generator):
        return proxy_unrolled_loss(denoiser, x, targets, schedule, follow, generator=generator)

    seen = []
    for loss, seeds in ((shared, range(80)), (independent, range(80, 160))):
        values = [loss(seeded(seed)) for seed in seeds]
        slopes = [torch.autograd.grad(value, gain)[0] for value in values]
        seen.append(torch.stack([torch.stack(values).detach(), torch.stack(slopes)]))
    error = (sum(s.var(1) for s in seen) / 80).sqrt()
    distance = (seen[0].mean(1) - seen[1].mean(1)).abs()
    assert (distance < 4 * error).all()
    assert (error < 0.03 * seen[1].mean(1).abs()).all()  # fine enough to see a difference


def test_the_proxy_of_a_loss_has_a_gradient_unless_detached():
    x, (y,) = windows(6, 1)
    for detach in (False, True):
        loss, estimate = loss_and_proxy(trained_a_little(), x, y, log_uniform(3), detach=detach, generator=seeded())
        assert loss.requires_grad
        assert estimate.requires_grad is not detach


# --- one batch, divided among processes ---------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1])
def test_shards_of_a_batch_meet_the_noise_of_the_whole(n):
    x, targets = windows(8, 2)
    loss = partial(proxy_unrolled_loss, trained_a_little(), schedule=log_uniform(4), follow=follow, n=n)
    whole = loss(x, targets, generator=Streams(9, range(8))).item()
    parts = [
        loss(x[rows], [y[rows] for y in targets], generator=Streams(9, range(4 * rank, 4 * rank + 4), 8)).item()
        for rank, rows in enumerate((slice(4), slice(4, None)))
    ]
    assert sum(parts) / 2 == pytest.approx(whole, rel=1e-12)
