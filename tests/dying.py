"""A training under torchrun whose second process is killed once, in the middle: python dying.py FOLDER"""

import os
import signal
import sys
from pathlib import Path

import torch
from small_fit import MODELS, trainer


def dying(folder):
    """The training; without a folder `died` beside it, its second process ends at update 33."""
    torch.manual_seed(0)
    model, mark = MODELS["v"](), folder.with_name("died")
    right = model.loss

    def loss(batch, generator):
        if run.rank.rank == 1 and run.progress.update == 33 and not mark.exists():
            mark.mkdir()
            os.kill(os.getpid(), signal.SIGKILL)
        return right(batch, generator)

    model.loss = loss
    run = trainer(model=model, folder=folder)
    run.run()


if __name__ == "__main__":
    torch.set_num_threads(1)
    dying(Path(sys.argv[1]))
