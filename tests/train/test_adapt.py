import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from toys import Filter, advected

from biasbound.core.bias import bias_curve
from biasbound.core.denoise import EpsDenoiser, VDenoiser, X0Denoiser
from biasbound.data.batches import Batch
from biasbound.models.losses import diffusion_loss
from biasbound.models.method import method
from biasbound.train.explorer import Explorer, SearchOptions, grid, ladder
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

DATA = advected(256)
VALID = advected(32, seed=1).unbind(1)
SEARCH = SearchOptions(levels=8, sigma_min=0.02, rounds=4, draws=1, tau=1.3, start="sigma")


def explorer_and_trainer(folder=None, wrapper=VDenoiser, search=SEARCH, **more):
    explorer = Explorer(search)

    def loss(model, frames, generator):
        return diffusion_loss(
            model, frames[:, 0], frames[:, 1], explorer.active, generator=generator
        )

    torch.manual_seed(0)
    options = FitOptions(
        updates=200, batch=32, lr=0.02, log_every=10, checkpoint_every=25, ema=0.9
    )
    trainer = Trainer(
        wrapper(Filter()),
        loss,
        lambda i: DATA[torch.as_tensor(i)],
        len(DATA),
        options,
        folder=folder,
        **more,
    )
    return explorer, trainer


@pytest.mark.parametrize(
    "wrapper", [EpsDenoiser, X0Denoiser, VDenoiser, lambda net: VDenoiser(net, 0.6)]
)
def test_the_search_runs_end_to_end_for_every_parameterisation(wrapper):
    explorer, trainer = explorer_and_trainer(wrapper=wrapper)
    found = explorer.run(trainer, *VALID)
    assert found.solved
    assert trainer.progress.update <= trainer.total
    denoisers = explorer.denoisers(trainer, found)
    schedule, table = ladder(denoisers, *VALID, SEARCH)
    assert schedule.sigma[0] == min(found.solved)
    assert schedule.sigma[-1] == SEARCH.sigma_max
    assert set(schedule.sigma) <= set(table.levels)
    rows = bias_curve(next(iter(denoisers.values())), *VALID, schedule, draws=1)
    assert len(rows) == len(schedule)


def test_each_network_is_stored_once(tmp_path):
    explorer, trainer = explorer_and_trainer(tmp_path)
    found = explorer.run(trainer, *VALID)
    solving = {s.checkpoint for s in found.solved.values()}
    files = {int(p.stem.split("-")[1]) for p in tmp_path.glob("network-*.safetensors")}
    assert solving <= files <= solving | {found.last}
    denoisers = explorer.denoisers(trainer, found)
    assert len({id(d) for d in denoisers.values()}) <= len(files)
    # From the files alone, as another process would.
    fresh, again = explorer_and_trainer(tmp_path)
    for sigma, denoiser in fresh.denoisers(again, found).items():
        assert all(
            torch.equal(a, b)
            for a, b in zip(denoiser.parameters(), denoisers[sigma].parameters(), strict=True)
        )


class Cut(Exception):
    pass


@pytest.mark.parametrize("cut", [1, 3])
def test_a_killed_exploration_ends_like_an_unbroken_one(tmp_path, cut):
    explorer, trainer = explorer_and_trainer(tmp_path / "whole")
    whole = explorer.run(trainer, *VALID)

    def stop(state):
        if len(state.history) == cut:
            raise Cut

    explorer, trainer = explorer_and_trainer(tmp_path / "cut")
    with pytest.raises(Cut):
        explorer.run(trainer, *VALID, on_round=stop)
    explorer, trainer = explorer_and_trainer(tmp_path / "cut")
    assert explorer.run(trainer, *VALID) == whole
    other = SearchOptions(levels=9, sigma_min=0.02, rounds=4, draws=1, tau=1.3)
    explorer, trainer = explorer_and_trainer(tmp_path / "cut", search=other)
    with pytest.raises(ValueError, match="another grid"):
        explorer.run(trainer, *VALID)


def test_levels_that_stay_are_measured_on_the_last_network():
    stay = replace(SEARCH, solved="stay")
    explorer, trainer = explorer_and_trainer(search=stay)
    found = explorer.run(trainer, *VALID)
    assert explorer.active == grid(stay)  # nothing left the training
    denoisers = explorer.denoisers(trainer, found)
    assert {id(d) for d in denoisers.values()} == {id(next(iter(denoisers.values())))}
    for name, value in next(iter(denoisers.values())).state_dict().items():
        assert torch.equal(value, trainer.averaged.state_dict()[name])
    assert all(solved.bias <= stay.tau for solved in found.solved.values())
    assert {s.round for s in found.solved.values()} == {len(found.history)}


@pytest.mark.parametrize("solved", ["stay", "leave"])
def test_an_exploration_goes_down_a_few_levels_at_a_time(solved):
    search = replace(SEARCH, solved=solved, ahead=2)
    explorer, trainer = explorer_and_trainer(search=search)
    seen = []
    explorer.run(trainer, *VALID, on_round=lambda state: seen.append((explorer.active, state)))
    levels = grid(search).sigma
    assert seen[0][0].sigma == levels[-2:]  # nothing is solved yet
    for (_, before), (active, after) in pairwise(seen):
        lowest = min(map(levels.index, before.solved), default=len(levels))
        assert levels.index(active.sigma[0]) >= lowest - 2
        assert solved == "stay" or not set(active.sigma) & set(before.solved)
        untrained = set(before.open) - set(active.sigma)
        assert all(after.history[-1][s] == math.inf for s in untrained)


def test_levels_leave_training_when_they_are_solved():
    explorer, trainer = explorer_and_trainer()
    seen = []
    explorer.run(
        trainer,
        *VALID,
        on_round=lambda state: seen.append((len(explorer.active), len(state.open))),
    )
    for (trained, _), (_, open_before) in zip(seen[1:], seen, strict=False):
        assert trained == open_before


# --- methods by label ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "facts"),
    [
        ("unet", {"base": "unet", "window": 1}),
        ("unet-residual", {"residual": True}),
        ("unet-ut7", {"unroll": 7, "pushforward": False, "window": 8}),
        ("unet-pf1", {"unroll": 1, "pushforward": True}),
        ("linear", {"prediction": "eps", "levels": 20}),
        ("log-uniform", {"base": "log-uniform"}),
        ("refiner-residual", {"base": "refiner", "residual": True}),
        ("adaptive", {"prediction": "eps", "residual": False, "proxy": False}),
        (
            "adaptive-v-residual-proxy",
            {"prediction": "v", "residual": True, "proxy": True, "window": 2},
        ),
    ],
)
def test_labels_say_what_is_trained(label, facts):
    made = method(label)
    assert {name: getattr(made, name) for name in facts} == facts
    assert made.label == label


@pytest.mark.parametrize(
    "label", ["", "unknown", "unet-v", "refiner-proxy", "linear-ut1", "adaptive-w", "unet-ut"]
)
def test_a_label_that_means_nothing_is_refused(label):
    with pytest.raises(ValueError, match="unknown method"):
        method(label)


@pytest.mark.parametrize(
    "label", ["adaptive-proxy-v", "adaptive-v-proxy-proxy", "adaptive-v-proxy-"]
)
def test_proxy_ends_a_label(label):
    with pytest.raises(ValueError, match=r"write adaptive-v-proxy$"):
        method(label)


@pytest.mark.parametrize(
    "label",
    ["unet-ut1", "unet-residual", "linear", "refiner", "adaptive-v-residual", "adaptive-proxy"],
)
def test_every_label_makes_a_model_with_a_loss_that_reaches_it(label):
    from biasbound.nets import UNetConfig

    chosen = method(label)
    config = UNetConfig(
        in_channels=3, out_channels=1, dims=1, width=8, multipliers=(1, 1), block="residual", attention=False,
        padding=("circular",), noise=True,
    )  # fmt: skip
    torch.manual_seed(0)
    model = chosen.model(config, 0.5)
    frames = advected(4, frames=chosen.window + 1)
    loss = chosen.loss(lambda: grid(SEARCH))(
        model, Batch(frames, torch.ones(4, 1, 16)), torch.Generator().manual_seed(0)
    )
    loss.backward()
    assert loss.isfinite()
    assert any(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())


@pytest.mark.parametrize(("kind", "rule"), [(X0Denoiser, "error"), (VDenoiser, "sigma")])
def test_auto_starts_an_x0_ladder_at_the_least_error(kind, rule):
    denoiser = kind(lambda z_t, x, log_snr: 0.1 * z_t)
    x, y = torch.randn(2, 16, 1, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    levels = dict.fromkeys((0.1, 0.5, 0.99), denoiser)
    found = {
        start: ladder(levels, x, y, SearchOptions(tau=50.0, start=start))[0]
        for start in ("auto", "sigma", "error")
    }
    assert found["auto"].sigma == found[rule].sigma
    assert found["auto"].meta["start"] == rule
