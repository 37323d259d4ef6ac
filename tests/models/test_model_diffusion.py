"""The diffusion model: its loss and its answer are those of its denoiser, schedule, transition and task."""

from typing import get_args

import pytest
import torch
from toys import SCHEDULE, Filter, batch, diffusion, frame, seeded, stirred

from biasbound.core.denoise import PREDICTIONS
from biasbound.core.losses import diffusion_loss, full_unrolled_loss, proxy_unrolled_loss
from biasbound.core.sample import Transition, sample
from biasbound.core.schedule import Schedule, log_uniform
from biasbound.models.diffusion import Diffusion, chain_of
from biasbound.models.direct import Direct
from biasbound.models.model import MODELS, Recipe, make
from biasbound.registry import find

every_transition = pytest.mark.parametrize("transition", get_args(Transition))


def model(transition="renoise", prediction="v", scale=0.5, told=0):
    return diffusion(stirred(Filter(condition=1 + told)), prediction, scale, transition=transition)


@every_transition
@pytest.mark.parametrize("prediction", PREDICTIONS)
def test_an_answer_is_a_sample_of_the_models_own_chain(transition, prediction):
    made, x = model(transition, prediction), batch(4).frames[:, 0]
    expected = sample(made, x, SCHEDULE, transition=transition, generator=seeded(1))
    assert torch.equal(made.advance(x, seeded(1)), expected)
    assert made.calls == len(SCHEDULE)


def test_channels_that_only_inform_are_not_answered():
    given = batch(3, told=2)
    made = model(told=2)
    assert made.advance(torch.cat([given.frames[:, 0], given.conditions], 1), seeded()).shape == (3, 1, 16)


def test_a_chain_that_breaks_is_returned_as_it_is():
    made = diffusion(lambda z_t, x, log_snr: z_t * torch.nan)
    assert made.advance(torch.zeros(2, 1, 16), seeded()).isnan().all()


@every_transition
@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(share=0.6),
        Recipe(2, "proxy"),
        Recipe(1, "proxy", n=2, detach=True, share=0.6),
        Recipe(1, "full"),
        Recipe(2, "full", detach=True),
    ],
    ids=str,
)
def test_the_loss_is_that_of_its_recipe_on_the_models_own_chain(recipe, transition):
    made, windows = model(transition, told=1), batch(6, told=1, frames=2 + recipe.unroll)
    made.recipe = recipe
    x, targets = made.windows(windows)
    follow, shared = made.frame.task.follow, {"generator": seeded(3), "share": recipe.share}
    if recipe.between == "own":
        expected = diffusion_loss(made, x, targets[0], SCHEDULE, **shared)
    elif recipe.between == "proxy":
        more = {"n": recipe.n, "detach": recipe.detach, "transition": transition}
        expected = proxy_unrolled_loss(made, x, targets, SCHEDULE, follow, **more, **shared)
    else:
        more = {"detach": recipe.detach, "transition": transition}
        expected = full_unrolled_loss(made, x, targets, SCHEDULE, follow, **more, **shared)
    assert torch.equal(made.loss(windows, seeded(3)), expected)


@pytest.mark.parametrize("between", ["proxy", "full"])
def test_the_transition_reaches_the_unrolled_loss(between):
    windows, losses = batch(6, frames=3), []
    for transition in get_args(Transition):
        made = model(transition)
        made.recipe = Recipe(1, between, n=2)
        losses.append(made.loss(windows, seeded(3)).item())
    assert len(set(losses)) == 3


@pytest.mark.parametrize(
    "recipe",
    [Recipe(), Recipe(2, "proxy"), Recipe(1, "proxy", n=2), Recipe(1, "full"), Recipe(1, "proxy", share=0.6)],
    ids=str,
)
def test_passes_expect_the_network_calls_of_an_update(recipe):
    asked = []

    def net(z_t, x, log_snr):
        asked.append(len(z_t))
        return 0.1 * z_t

    made = diffusion(net, schedule=log_uniform(9, 0.1, 0.9))
    made.recipe = recipe
    made.loss(batch(400, frames=2 + recipe.unroll), seeded())
    assert sum(asked) / 400 == pytest.approx(Diffusion.passes(recipe, 9), rel=0.05)
    assert made.rows == sum(asked)


def test_the_levels_of_the_loss_are_those_of_the_schedule_now():
    told = []
    made = diffusion(lambda z_t, x, log_snr: told.append(log_snr) or z_t)
    for levels in (SCHEDULE, Schedule([0.3])):
        made.schedule = levels
        made.loss(batch(64), seeded())
        assert len(told.pop().unique()) == len(levels) == made.calls


@every_transition
def test_the_spec_makes_the_model_again(transition):
    made = model(transition, "x0")
    again = make("diffusion", made.net, made.frame, {**made.spec(), "schedule": made.schedule})
    x = batch(3).frames[:, 0]
    assert torch.equal(again.advance(x, seeded()), made.advance(x, seeded()))
    assert again.spec() == made.spec() == {"prediction": "x0", "transition": transition}


def test_what_is_no_chain_is_refused():
    with pytest.raises(ValueError, match="needs a noise schedule"):
        find(MODELS, "diffusion")(Filter(), frame())
    with pytest.raises(ValueError, match="no prediction 'w'"):
        diffusion(Filter(), "w")
    made = model()
    assert chain_of(made) is made
    assert chain_of(Direct(Filter(), frame())) is None
