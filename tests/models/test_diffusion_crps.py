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


def test_its_label_reads_back_and_starts_from_the_same_training():
    made = method("adaptive-scaled-residual-crps")
    assert made.label == "adaptive-scaled-residual-crps"
    assert made.trained == method("adaptive-scaled-residual")
    assert made.recipe().members == 2
