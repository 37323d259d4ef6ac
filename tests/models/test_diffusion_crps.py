"""A chain fine-tuned on the score of its own answers."""

import torch
from toys import Filter, batch, diffusion, seeded

from biasbound.core.crps import crps
from biasbound.core.sample import sample
from biasbound.models.method import method
from biasbound.models.model import Recipe


def test_the_loss_is_the_fair_crps_of_two_answers_and_its_gradient_passes_through_their_chains():
    torch.manual_seed(0)
    model = diffusion(Filter(), "v")
    for weights in model.parameters():
        weights.data.add_(0.1 * torch.randn(weights.shape))  # some begin at zero
    model.recipe = Recipe(members=2)
    window = batch(6)
    x, (y, *_) = model.windows(window)
    found = model.loss(window, seeded(3))
    rng = seeded(3)
    made = torch.stack([sample(model, x, model.schedule, generator=rng, like=y) for _ in range(2)])
    assert torch.allclose(found, crps(made - y).mean())
    gradients = torch.autograd.grad(found, list(model.parameters()))
    assert all(bool(g.abs().sum() > 0) for g in gradients)


def test_members_of_the_unrolled_score_follow_their_own_answers():
    torch.manual_seed(0)
    model = diffusion(Filter(), "v")
    model.recipe = Recipe(1, members=2)
    window = batch(6, frames=3)
    x, targets = model.windows(window)
    found, rng = model.loss(window, seeded(3)), seeded(3)
    states, scores = [x, x], []
    for y in targets:
        made = [sample(model, state, model.schedule, generator=rng, like=y) for state in states]
        scores.append(crps(torch.stack(made) - y).mean())
        states = [model.frame.task.follow(state, one) for state, one in zip(states, made, strict=True)]
    assert torch.allclose(found, torch.stack(scores).mean())
    assert not torch.allclose(states[0], states[1])
    assert model.rows == 2 * 6 * model.passes(model.recipe, model.calls)


def test_its_label_reads_back_and_starts_from_the_same_training():
    made = method("adaptive-scaled-residual-crps")
    assert made.label == "adaptive-scaled-residual-crps"
    assert made.trained == method("adaptive-scaled-residual")
    assert made.recipe().members == 2
