"""One call from trajectories to the better of two emulators: who wins, that it goes on, and what it says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from calling import called, refused
from own_networks import Perceptron
from torch import nn

import biasbound as bb
from biasbound.data.splits import divided
from biasbound.fitting.compare import Standing, decided
from biasbound.fitting.probe import Probe, Setting, _less, _levels
from biasbound.fitting.request import Request
from biasbound.models.task import Forecast
from biasbound.report import figures
from biasbound.study.stages.material import Material

FEW = {"updates": 8, "quiet": True}


def waves(trajectories=8, frames=14, points=16, seed=0):
    """Two travelling waves per trajectory, each at its own speed."""
    made = np.random.default_rng(seed)
    x, t = np.arange(points) * 2 * np.pi / points, np.arange(frames)[:, None]
    one = [
        np.sin(x - 0.3 * t + made.uniform(0, 6)) + 0.5 * np.sin(2 * x + 0.2 * t + made.uniform(0, 6))
        for _ in range(trajectories)
    ]
    return np.stack(one)[:, :, None].astype(np.float32)


def data(**how):
    return bb.from_array(waves(**how), dt=0.1, channels=["u"], domain=[(0.0, 1.0)], boundary=["periodic"])


@pytest.fixture(scope="module", autouse=True)
def _few_figures():
    """The page alone: figures have tests of their own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(figures, "FIGURES", {})
        yield


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    out = tmp_path_factory.mktemp("fit") / "waves"
    return bb.fit(data(), out=out, **FEW), out


def test_the_better_of_two_on_an_equal_ledger_is_kept(fitted):
    found, out = fitted
    assert {*found.standings} == {"direct-residual", "adaptive-scaled-residual"} or {*found.standings} == {
        "direct",
        "adaptive-scaled",
    }
    assert found.standings[found.chosen].one == min(one.one for one in found.standings.values())
    ledgers = {row.ledger for row in found.scores if row.method != "persistence"}
    assert ledgers == {found.choice.updates * found.choice.batch}
    assert "persistence" in {row.method for row in found.scores}
    made = out / "03-train" / found.chosen / "seed-0" / "emulator"
    x = data().first()
    again = bb.load(made).rollout(x, 3, generator=torch.Generator().manual_seed(0))
    kept = bb.load(out / "emulator").rollout(x, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.states, kept.states)
    assert found.page.exists()
    assert found.why in found.report
    assert "by trajectory" in found.report


def test_the_lines_of_the_front_door(fitted, tmp_path):
    found, _ = fitted
    train, valid, test = data().split_time(0.5, 0.25, 0.25, gap=1)
    rollout = found.emulator.rollout(test.first(), steps=2, members=3)
    told = str(bb.score(rollout, test, baselines=["persistence"]))
    assert "persistence" in told
    found.emulator.save(tmp_path / "emulator")
    same = bb.load(tmp_path / "emulator")
    assert torch.equal(
        same.rollout(test.first(), 2, generator=torch.Generator().manual_seed(1)).states,
        found.emulator.rollout(test.first(), 2, generator=torch.Generator().manual_seed(1)).states,
    )
    assert len(train) == len(valid) == len(test) == 8


def test_the_same_call_goes_on_and_makes_nothing_again(fitted):
    found, out = fitted
    before = {p: p.stat().st_mtime_ns for p in out.rglob("stage.json")}
    again = bb.fit(data(), out=out, **FEW)
    assert before == {p: p.stat().st_mtime_ns for p in out.rglob("stage.json")}
    assert (again.chosen, again.standings) == (found.chosen, found.standings)
    with pytest.raises(ValueError, match="holds a fit with other settings"):
        bb.fit(data(), out=out, updates=9, quiet=True)


@pytest.mark.long
def test_a_fit_that_was_stopped_after_its_trials_does_not_try_again(fitted, tmp_path, monkeypatch):
    from biasbound.fitting import run

    def stop(*arguments):
        raise KeyboardInterrupt

    found, out = fitted
    with monkeypatch.context() as patched:
        patched.setattr(run, "_study", stop)
        with pytest.raises(KeyboardInterrupt):
            bb.fit(data(), out=tmp_path / "fit", **FEW)
    monkeypatch.setattr(run, "Probe", stop)
    again = bb.fit(data(), out=tmp_path / "fit", **FEW)
    told = [json.loads((place / "fit.json").read_text()) for place in (out, tmp_path / "fit")]
    for one in told:
        del one["choice"]["seconds_per_update"], one["choice"]["words"]
    assert told[0] == told[1]
    assert again.chosen == found.chosen


def test_a_trial_that_breaks_loses_and_nothing_else_does():
    parts = divided(data())
    probe = Probe(Material(parts.__getitem__), Forecast(), Request(updates=80), lambda text: None)
    wild, tame = Setting(lr=1e6), Setting()
    assert probe._better(wild, tame) == tame
    assert all(np.isfinite([one.train, one.valid]).all() for one in probe.trials)


def test_what_is_preferred_decides():
    standings = {"a": Standing(0.1, 0.9, 0.5, 10), "b": Standing(0.2, 0.3, 0.6, 10), "c": Standing(0.3, 0.8, 0.4, 10)}
    best = {prefer: decided(standings, prefer)[0] for prefer in ("accuracy", "rollout", "ensemble")}
    assert best == {"accuracy": "a", "rollout": "b", "ensemble": "c"}
    assert "after 10 steps" in decided(standings, "rollout")[1]


@pytest.mark.long
@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("given", ["class", "diffusion"])
def test_a_network_of_ones_own_is_fitted(given):
    """A class makes both models; an instance with its number of channels one of them."""

    class Small(nn.Module):
        def __init__(self, in_channels, out_channels):
            super().__init__()
            self.layer = nn.Conv1d(in_channels, out_channels, 3, padding=1, padding_mode="circular")

        def forward(self, field):
            return self.layer(field)

    net = Small if given == "class" else Small(3, 1)
    found = bb.fit(data(), net=net, **FEW)
    assert found.folder is None
    assert len(found.standings) == (2 if given == "class" else 1)
    assert given == "class" or found.chosen.startswith("adaptive")
    assert sum(p.numel() for p in found.emulator.model.parameters()) < 30
    assert found.emulator.rollout(data().first(), 2).states.shape == (1, 8, 2, 1, 16)


def fno(in_channels, out_channels):
    from neuralop.models import FNO

    return FNO(n_modes=(4,), in_channels=in_channels, out_channels=out_channels, hidden_channels=8, n_layers=1)


def unet2d(in_channels, out_channels):
    from diffusers import UNet2DModel

    kinds = {"down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2}
    sizes = {"block_out_channels": (8, 8), "norm_num_groups": 4, "layers_per_block": 1}
    return UNet2DModel(in_channels=in_channels, out_channels=out_channels, **kinds, **sizes)


@pytest.mark.long
@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize(("make", "dims"), [(fno, 1), (unet2d, 2), (Perceptron, 1)])
def test_networks_of_other_libraries_are_fitted(make, dims):
    fields = waves(6, points=8)
    fields = fields if dims == 1 else fields[..., None] * fields[..., None, :]
    found = bb.fit(bb.from_array(fields, dt=0.1), net=make, updates=4, quiet=True)
    assert len(found.standings) == 2
    assert np.isfinite([one.one for one in found.standings.values()]).all()


@pytest.mark.long
def test_one_trajectory_is_divided_in_time_and_few_data_are_said_to_be_few(tmp_path, capsys):
    np.save(tmp_path / "one.npy", waves(1, frames=40)[0, :, 0])
    words = ["fit", tmp_path / "one.npy", "--dt", "0.1", "--updates", "6", "--out", tmp_path / "fit", "--dims", "1"]
    code, said, _ = called([*words, "--dry-run"], capsys)
    assert code == 0
    assert "6 updates" in said
    assert not (tmp_path / "fit").exists()
    code, said, _ = called(words, capsys)
    assert code == 0
    assert "divided in time" in said
    assert "persistence" in said.lower()
    told = json.loads(called([*words, "--json"], capsys)[1])  # everything is there already
    assert told["calls"] == bb.load(told["emulator"]).nfe
    assert all(Path(told[name]).exists() for name in ("emulator", "results", "page"))
    card = (tmp_path / "fit" / "emulator" / "README.md").read_text()
    assert "divided in time" in card
    assert "| one_step_mse |" in card


def test_bad_requests_get_one_sentence(tmp_path, capsys):
    np.save(tmp_path / "a.npy", waves(4))
    for words, said in (
        (["--minutes", "0"], "--minutes must be above 0"),
        (["--minutes", "1", "--updates", "3"], "not both"),
        (["--valid", "b.npy"], "both data.valid and data.test"),
    ):
        refused(["fit", tmp_path / "a.npy", "--dt", "1", *words], capsys, said)
    refused(["fit", tmp_path / "none.npy"], capsys, "none.npy")


def test_a_unet_is_as_deep_as_its_grid_is_long():
    assert [_levels((n,)) for n in (8, 64, 128, 512)] == [3, 3, 4, 6]
    assert dict(_less("unet", (512,)))["width"] == 16
    assert _less("fno", (512,)) is None
    assert replace(Request(minutes=2.0), seed=1).seconds == 120
    assert Request(updates=5).seconds is None
