"""The refiner's share of its lowest level."""

import math

import pytest
import torch
from toys import frame, seeded

from biasbound.data.batches import Batch
from biasbound.models.method import method
from biasbound.models.model import Recipe
from biasbound.models.refiner import Refiner


def drawn(share, steps=3, count=8000):
    """How often the loss asks for each level, from the first prediction to the last refinement."""
    told = []

    def net(z_t, x, log_snr):
        told.extend((-log_snr / 2).exp().tolist())
        return torch.zeros_like(z_t)

    refiner = Refiner(net, frame(), refinements=steps, sigma_min=1e-2)
    refiner.recipe = Recipe(share=share)
    refiner.loss(Batch(torch.zeros(count, 2, 1, 4), torch.zeros(count, 0, 4)), seeded())
    return [sum(math.isclose(s, level, rel_tol=1e-4) for s in told) / count for level in refiner.levels]


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_the_last_refinement_gets_its_share_and_all_others_alike(steps):
    *others, last = drawn(0.7, steps)
    assert last == pytest.approx(0.7, abs=0.02)
    assert others == pytest.approx([0.3 / steps] * steps, abs=0.02)


def test_shares_per_level_count_from_the_lowest():
    assert drawn((0.5, 0.3, 0.2, 0.0)) == pytest.approx([0.0, 0.2, 0.3, 0.5], abs=1 / 4000)


def test_without_a_share_all_levels_are_drawn_alike():
    assert drawn(None) == pytest.approx([0.25] * 4, abs=0.02)


def test_a_focused_refiner_is_a_method_with_the_authors_share():
    made = method("refiner-focus")
    assert (made.label, made.title) == ("refiner-focus", "PDE-Refiner, focused")
    assert made.recipe().share == pytest.approx(11 / 14)  # 1/14 for each of the three others
    assert method("refiner").recipe().share is None
    assert drawn(made.recipe().share) == pytest.approx([1 / 14] * 3 + [11 / 14], abs=0.02)
