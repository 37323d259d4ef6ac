"""One process against two with the same global batch: python benchmarks/two_processes.py

Runs `torchrun --nproc_per_node=2 benchmarks/train_small.py` and the same in one process over 200 updates, and prints the
largest relative difference of the reported losses (each the mean of five updates over the whole batch).
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from biasbound._io import read_lines

PROGRAM = str(Path(__file__).parent / "train_small.py")

with tempfile.TemporaryDirectory() as home:
    one, two = Path(home) / "one", Path(home) / "two"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    subprocess.run([*launch, PROGRAM, str(two)], check=True, env=environment)
    subprocess.run([sys.executable, PROGRAM, str(one)], check=True, env=environment)
    rows = [read_lines(folder / "log.jsonl") for folder in (one, two)]
    assert [r["update"] for r in rows[0]] == [r["update"] for r in rows[1]]
    worst = max(abs(a["loss"] / b["loss"] - 1) for a, b in zip(*rows, strict=True))
    print(
        f"{rows[0][-1]['update']} updates: loss {rows[0][0]['loss']:.4f} → {rows[0][-1]['loss']:.4f}; "
        f"largest relative difference between 1 and 2 processes {worst:.1e}"
    )
    sys.exit(worst > 1e-4)
