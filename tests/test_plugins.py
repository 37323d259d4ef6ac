"""Everything that can be registered, from outside: a study runs with it by name, from data to report."""

from dataclasses import asdict, dataclass
from operator import methodcaller
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import biasbound
from biasbound.cli import main
from biasbound.core.denoise import PREDICTIONS, Prediction
from biasbound.core.schedule import SCHEDULES, Schedule
from biasbound.data.formats import FORMATS, Format
from biasbound.data.layout import Block, Layout, Split
from biasbound.data.trajectories import Trajectories
from biasbound.flows import FLOWS
from biasbound.flows.flow import Size
from biasbound.metrics import METRICS, Result
from biasbound.models.model import MODELS, Model
from biasbound.models.task import TASKS, Forecast
from biasbound.nets import NETS
from biasbound.report import figures


@dataclass(frozen=True)
class Waves:
    split: Split = "train"
    seed: int = 0
    sizes: ClassVar = {"tiny": Size()}
    layout: ClassVar = Layout("waves", 6, 8, ("u",), (16,), 0.5, ((0.0, 1.0),), ("periodic",))

    def provenance(self):
        return asdict(self)

    def block(self, start, stop):
        x, t = 2 * np.pi * np.arange(16) / 16, np.arange(8)[:, None, None]
        return Block(np.stack([np.sin(x + i + len(self.split) - 0.5 * t) for i in range(start, stop)]))


def read_table(path, dt=0.5):
    return Trajectories.from_array(np.loadtxt(path).reshape(-1, 8, 1, 16), dt=dt, channels=["u"], name="waves")


def even(levels):
    return Schedule([(i + 1) / (levels + 1) for i in range(levels)])


class Turned(Prediction):
    title = "w-prediction"

    def estimate(self, first, second, a, s):
        return a * second - s * first  # from (output, z_t) to z, and from (z, ε) to the output

    objective = estimate


class Stencil(nn.Module):
    def __init__(self, spec, noisy):
        super().__init__()
        inputs = spec.inputs + (spec.outputs + 1) * noisy  # a noisy target and its log-SNR
        self.conv = nn.Conv1d(inputs, spec.outputs, spec.options["points"], padding="same", padding_mode="circular")

    def forward(self, first, x=None, log_snr=None):
        return self.conv(first if x is None else torch.cat([first, x, log_snr[:, None, None].expand_as(first)], 1))


class Halved(Model):
    noisy: ClassVar = False

    def advance(self, x, generator=None):
        return (self.net(x) + self.frame.task.guess(x, self.frame.channels)) / 2

    def loss(self, batch, generator):
        x, (y, *_) = self.windows(batch)
        return (self.advance(x) - y).square().mean()


@dataclass(frozen=True)
class Damped(Forecast):
    rate: float = 0.9

    def guess(self, x, channels):
        return self.rate * x[:, :channels]


def largest(scene):
    yield Result("largest", scene.first.max(), scene.frames)


PLUGINS = [
    (FLOWS, "waves", Waves),
    (FORMATS, "table", Format("a table", methodcaller("match", "*.tab"), read_table)),
    (SCHEDULES, "even", even),
    (PREDICTIONS, "w", Turned()),
    (NETS, "stencil", Stencil),
    (MODELS, "halved", Halved),
    (TASKS, "damped", Damped),
    (METRICS, "largest", largest),
]
STUDY = '--preset ks-smoke --data.dataset waves --data.stride_time 1 --network.name stencil --network.options {"points":5} '
STUDY += '--task.name damped --task.options {"rate":0.8} --methods=halved,even-w-residual,adaptive-w --train.updates 8'


@pytest.mark.long
def test_a_study_runs_with_everything_that_others_registered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "FIGURES", {"ladder": figures.FIGURES["ladder"]})  # the others: tests/report
    for registry, name, thing in PLUGINS:
        monkeypatch.setitem(registry, name, thing)
    np.savetxt("train.tab", np.concatenate([Waves().block(i, i + 1).fields.reshape(1, -1) for i in range(20)]))
    for data in ("--data.size tiny --jobs 1", "--data.train train.tab --jobs 2"):
        assert main(f"run {data[-1]} {STUDY} {data}".split()) == 0
        assert Path(data[-1], "results.jsonl").read_text().count('"largest"') == 4  # with persistence
        assert "even-w-residual" in Path(data[-1], "07-report/index.html").read_text()
    chain = biasbound.load("1/03-train/even-w-residual/seed-0/emulator")
    assert (chain.schedule.sigma, chain.model.frame.task) == (even(6).sigma, Damped(rate=0.8))
