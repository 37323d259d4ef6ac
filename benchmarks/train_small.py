"""A small diffusion training on Kuramoto–Sivashinsky, to be killed, resumed and divided among processes.

    python benchmarks/train_small.py out/one --updates 200
    torchrun --nproc_per_node=2 benchmarks/train_small.py out/two --updates 200

Killed at any moment and started again, it goes on; under torchrun the same global batch is divided among the processes.
"""

import argparse
from pathlib import Path

import torch

from biasbound.core.schedule import log_uniform
from biasbound.data.batches import Batch
from biasbound.data.trajectories import Trajectories
from biasbound.flows.flow import source as source_of
from biasbound.models.method import method
from biasbound.models.model import Settings
from biasbound.models.task import Forecast
from biasbound.nets import NetSpec
from biasbound.train.observers import JsonlLog
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder", type=Path)
parser.add_argument("--updates", type=int, default=200)
parser.add_argument("--checkpoint-every", type=int, default=20)
parser.add_argument("--compile", action="store_true", help="compile the network")
args = parser.parse_args()

torch.set_num_threads(1)
args.folder.mkdir(parents=True, exist_ok=True)
source = source_of("ks", "smoke", warmup=100)
windows = Trajectories.from_array(source.block(0, 16).fields, dt=source.dt).pairs()
chosen, task = method("adaptive-v"), Forecast()
network = NetSpec("unet", 1, 1, windows[[0]].frames.shape[3:], ("periodic",)).resolved()
torch.manual_seed(0)
model = chosen.build(network, task, 1.0, chosen.options(Settings(schedule=log_uniform(6, 0.02))))
manner = {"checkpoint_every": args.checkpoint_every, "compile": args.compile}
options = FitOptions(updates=args.updates, batch=16, log_every=5, **manner)


def batch(index):
    raw = windows[index]
    return Batch(raw.frames / 1.3, raw.conditions)


log = JsonlLog(args.folder / "log.jsonl")
Trainer(model, batch, len(windows), options, folder=args.folder, observers=[log]).run()
