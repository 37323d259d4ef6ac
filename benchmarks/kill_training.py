"""Kill a training at random moments, start it again each time, and compare: python benchmarks/kill_training.py [KILLS]

Prints whether weights, optimiser, average and log of the run that was killed equal those of the one that was not.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from biasbound.checkpoint import load_newest
from biasbound.track import read_rows

HERE = Path(__file__).parent
KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 20


def start(folder: Path) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, str(HERE / "train_small.py"), str(folder), "--updates", "400"]
    )


with tempfile.TemporaryDirectory() as home:
    whole, killed = Path(home) / "whole", Path(home) / "killed"
    begun = time.perf_counter()
    assert start(whole).wait() == 0
    length = time.perf_counter() - begun
    moments, stopped = random.Random(0), []
    for kill in range(KILLS):
        run = start(killed)
        # Start-up is most of a short run: let the moments fall into all of it, and now and then early.
        time.sleep(moments.uniform(0.2, 1.0) * length * 0.9)
        finished = run.poll() is not None
        run.send_signal(signal.SIGKILL)
        run.wait()
        found = load_newest(killed)
        stopped.append(0 if found is None else found[1]["progress"]["update"])
        print(
            f"kill {kill + 1:2d}: {'had finished' if finished else 'killed'}, checkpoint at update {stopped[-1]}",
            flush=True,
        )
    assert start(killed).wait() == 0
    (a, _), (b, _) = load_newest(whole), load_newest(killed)
    same = a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    logs = read_rows(whole / "log.jsonl") == read_rows(killed / "log.jsonl")
    print(
        f"{KILLS} kills; {len(a)} tensors {'identical' if same else 'DIFFERENT'}; logs {'identical' if logs else 'DIFFERENT'}"
    )
    sys.exit(not (same and logs))
