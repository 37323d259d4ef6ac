"""Networks that others wrote, from training to diagnosis: trained, saved and given again, and in whole studies."""

import sys
from functools import partial
from pathlib import Path

import own_networks
import pytest
import torch
from calling import called, refused
from emulators import UNITS
from own_networks import Convolution, Perceptron
from toys import advected, batch, diffusion, frame, seeded

import biasbound
from biasbound import registry
from biasbound.cli import main
from biasbound.core.diagnose import diagnose
from biasbound.core.options import SearchOptions
from biasbound.data.batches import Batch
from biasbound.data.formats import save
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows
from biasbound.models.direct import Direct
from biasbound.models.emulator import Emulator
from biasbound.nets import NETS, NetSpec
from biasbound.nets.foreign import adopt
from biasbound.report import figures
from biasbound.study.execute import Manner, collect, make_units
from biasbound.study.folder import open_run
from biasbound.study.graph import study_units
from biasbound.study.parsing import presets, read_config
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

pytestmark = pytest.mark.usefixtures("own_names")


def fitted(net, noisy, windows, updates=4, **how):
    """A short training of a network, as a diffusion model or as a direct one."""
    model = diffusion(net) if noisy else Direct(net, frame())
    return trained(model, windows, updates, **how)


def trained(model, windows, updates=4, **how):
    options = FitOptions(updates=updates, batch=8, lr=1e-2, seed=1, **how)
    data = lambda i: Batch(windows.frames[i], windows.conditions[i])
    return Trainer(model, data, len(windows.frames), options).run()


def same_weights(one, other):
    pairs = [(one.state_dict()[name], value) for name, value in other.state_dict().items()]
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("ema", [0.9, None])
def test_layers_that_act_otherwise_while_they_learn_rest_in_an_emulator(ema, tmp_path):
    windows = batch(64)
    run = fitted(adopt(partial(Convolution, drop=0.5), NetSpec("c", 1, 1, (16,)), False), False, windows, 20, ema=ema)
    made, x = Emulator(run.kept, UNITS, ("u",), 1.0), windows.frames[:, 0]
    assert torch.equal(made.step(x), made.step(x))
    assert torch.allclose(made.step(x)[:1], made.step(x[:1]), atol=1e-6)  # each row by itself
    before = {name: value.clone() for name, value in run.model.named_buffers()}
    run.total += 1
    run.update()
    assert all(not torch.equal(before[name], value) for name, value in run.model.named_buffers())  # learns again
    made.save(tmp_path / "it")
    back = biasbound.load(tmp_path / "it", net=Convolution)
    assert torch.equal(back.step(x), back.step(x))


def flow(dims):
    """Windows (B, 2, 1, *N) of waves that move."""
    windows = batch(24, points=16)
    if dims == 1:
        return windows
    frames = (windows.frames[..., None] + windows.frames.roll(1, 0)[..., None, :])[..., ::2, ::2]
    return Batch(frames, frames[:, 0, :0])


def fourier_operator():
    from neuralop.models import FNO

    return partial(FNO, n_modes=(6,), hidden_channels=8, n_layers=2)


def diffusers_unet():
    from diffusers import UNet2DModel

    blocks = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2}
    return partial(
        UNet2DModel, **blocks, block_out_channels=[8, 8], norm_num_groups=4, layers_per_block=1, attention_head_dim=4
    )


NETWORKS = {
    "convolution": (lambda: Convolution, 1),
    "perceptron": (lambda: Perceptron, 1),
    "UNet2DModel": (diffusers_unet, 2),
    "FNO": (fourier_operator, 1),
}


@pytest.mark.long
@pytest.mark.parametrize("noisy", [True, False], ids=["diffusion", "direct"])
@pytest.mark.parametrize("name", NETWORKS)
def test_anyones_network_is_trained_saved_and_continued(name, noisy, tmp_path):
    make, dims = NETWORKS[name]
    factory, windows = make(), flow(dims)
    grid = tuple(windows.frames.shape[3:])
    torch.manual_seed(0)
    net = adopt(factory, NetSpec(name + ":made", 1, 1, grid, ("periodic",) * dims), noisy)
    run = fitted(net, noisy, windows)
    made = Emulator(run.kept, UNITS, ("u",), 1.0)
    made.save(tmp_path / "it")
    with pytest.raises(ValueError, match=f"its author's, {name}:made; load it with"):
        biasbound.load(tmp_path / "it")
    back, x = biasbound.load(tmp_path / "it", net=factory), windows.frames[:2, 0]
    instance = biasbound.load(tmp_path / "it", net=back.model.net.module)
    states = [e.rollout(x, 3, generator=seeded()).states for e in (made, back, instance)]
    assert torch.equal(states[0], states[1])
    assert torch.equal(states[0], states[2])
    assert same_weights(trained(run.kept, windows).kept, trained(back.model, windows).kept)
    if noisy:
        x, y = windows.frames[:8].unbind(1)
        found = diagnose(back.model, x, y, SearchOptions(levels=3, sigma_min=0.1, tau=99.0), back.schedule)
        assert len(found.levels) == 3


def written(folder, dims):
    """A file of trajectories, and the settings of a study of it that takes seconds."""
    fields = advected(10, frames=8)
    if dims == 2:
        fields = (fields[..., None] + fields.roll(1, 0)[..., None, :])[..., ::2, ::2]
    save(Trajectories.from_array(fields.numpy(), dt=1.0, channels=["u"], name="waves"), folder / "waves.h5")
    study = "--data.dataset waves --data.stride_time 1 --methods=[direct,adaptive-v-residual-proxy] --train.updates 6 "
    study += "--search.levels 3 --search.pairs 4 --finetune.updates 2 --train.evaluations 1 --evaluate.pairs 4"
    return [*study.split(), "--data.train", str(folder / "waves.h5"), *(f"--network.{u}=null" for u in UNSET)]


UNSET = ("width", "multipliers", "embedding")


@pytest.mark.long
@pytest.mark.parametrize("name", ["perceptron", "UNet2DModel", "FNO"])
def test_anyones_network_goes_through_a_study(name, tmp_path):
    make, dims = NETWORKS[name]
    own = registry.enrol(NETS, make())
    config = read_config(presets()["ks-smoke"], [*written(tmp_path, dims), "--network.name", own])
    run = open_run(tmp_path / "run", config)
    outcome = make_units(run, study_units(config), Manner(), lambda event: None)
    assert not outcome.failed
    rows = read_rows(collect(run, study_units(config)))
    assert {row.method for row in rows} == {"persistence", "direct", "adaptive-v-residual-proxy"}
    assert not [row for row in rows if row.metric == "mse" and row.value is None]


class Curious(Perceptron):
    """It looks at numbers, which a tensor without memory does not have."""

    def forward(self, field):
        return super().forward(field) * (1 if field.sum().item() > 0 else 2)


@pytest.mark.long
def test_the_cost_of_anyones_network_is_known_before(tmp_path, capsys):
    costs = []
    for net in (Perceptron, Curious):
        own = ["--network", registry.enrol(NETS, net), "--methods", "direct"]
        code, said, problem = called(["run", tmp_path / "r", "--preset", "ks-smoke", *own, "--dry-run"], capsys)
        assert code == 0, problem
        line = next(line for line in said.splitlines() if "03-train" in line)
        costs.append(
            line.partition("to do")[2].partition("FLOP")[0]
        )  # memory is known exactly where no value is asked for
    weights = 64 * 16 + 16 + 16 * 64 + 64
    assert costs[0] == costs[1]
    assert f"{weights:,}" in said


@pytest.mark.long
def test_a_network_in_a_module_of_ones_own_by_commands(tmp_path, monkeypatch, capsys):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/my_nets.py").write_text(Path(own_networks.__file__).read_text())
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "FIGURES", {"ladder": figures.FIGURES["ladder"]})  # the others: tests/report
    own = "my_nets:Convolution"
    study = [*written(tmp_path, 1), "--network.options", '{"width":6}', "--jobs", "1", "--rollout.trajectories", "1"]
    assert main(["run", "r", "--preset", "ks-smoke", "--network", own, *study]) == 0, capsys.readouterr().err
    assert "Adaptive" in (tmp_path / "r/07-report/index.html").read_text()

    del NETS[own]
    registry._ALLOWED.clear()  # as in a new process
    emulator = "r/04-finetune/adaptive-v-residual-proxy/seed-0/emulator"
    on = ["--data", "waves.h5", "--pairs", "8"]
    refused(["diagnose", emulator, *on], capsys, f"its author's, {own};", f"give --network {own}")
    more = ["train", "r", "--method", "linear", "--jobs", "1"]
    refused(more, capsys, f"{own!r} would have to be imported")
    (tmp_path / "own.yaml").write_text(f"network: {own}\n")  # a text is the name, here too
    for told in (["--network", own], [f"--network={own}"], ["--config", "own.yaml"]):
        assert called([*more, *told], capsys)[0] == 0
    measured = ["--levels", "3", "--sigma-min", "0.1", "--tau", "99"]
    predict = ["predict", emulator, "--data", "waves.h5", "--steps", "2", "--out", "p.npy"]
    for command in (["diagnose", emulator, *on, *measured], ["schedule", "front", emulator, *on], predict):
        code, _, problem = called([*command, "--network", own], capsys)
        assert code == 0, problem
    refused([*predict, "--force", "--network", "unet"], capsys, "--network is package.module:name")
