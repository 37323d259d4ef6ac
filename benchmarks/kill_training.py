"""Kill a training at random moments, start it again each time, and compare: python benchmarks/kill_training.py [KILLS] [--compile]

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

from biasbound._io import read_lines
from biasbound.models.weights import load_newest

HERE = Path(__file__).parent
MANNER = [word for word in sys.argv[1:] if word.startswith("--")]
KILLS = next((int(word) for word in sys.argv[1:] if word not in MANNER), 20)
UPDATES = 60 * KILLS


def start(folder: Path) -> subprocess.Popen:
    program = [sys.executable, str(HERE / "train_small.py"), str(folder), "--updates", str(UPDATES)]
    return subprocess.Popen([*program, *MANNER])


def last_update(folder: Path) -> int:
    """How far a run says that it is, in steps of five updates."""
    log = folder / "log.jsonl"
    rows = read_lines(log, torn=True) if log.exists() else []
    return rows[-1]["update"] if rows else 0


with tempfile.TemporaryDirectory() as home:
    whole, killed = Path(home) / "whole", Path(home) / "killed"
    assert start(whole).wait() == 0
    moments = random.Random(0)
    for kill in range(KILLS):
        run, begun = start(killed), last_update(killed)
        goal = begun + moments.randrange(0, 70)
        while run.poll() is None and last_update(killed) <= goal:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.1))
        assert run.poll() is None, "the run had ended before it was killed"
        run.send_signal(signal.SIGKILL)
        run.wait()
        found = load_newest(killed)
        update = 0 if found is None else found[1]["progress"]["update"]
        print(f"kill {kill + 1:2d} after update {last_update(killed)}; goes on from {update}", flush=True)
    assert start(killed).wait() == 0
    (a, _), (b, _) = load_newest(whole), load_newest(killed)
    same = a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
    logs = read_lines(whole / "log.jsonl") == read_lines(killed / "log.jsonl")
    print(
        f"{KILLS} kills; {len(a)} tensors {'identical' if same else 'DIFFERENT'}; logs {'identical' if logs else 'DIFFERENT'}"
    )
    sys.exit(not (same and logs))
