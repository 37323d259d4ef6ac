"""What caution costs: python benchmarks/trust_costs.py [--rounds 20]

Seconds to write a file of 1 kB and of 10 MB in place, with and without waiting for the disk; and to look at good HDF5
files in a child first: the first file of a process, another one, and one that was looked at before.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

FIRST = """
import resource, sys, time
from pathlib import Path
import h5py
from biasbound.data.formats import guard
begun, used = time.perf_counter(), time.process_time()
guard.looked_at(Path(sys.argv[1]))
took, own = time.perf_counter() - begun, time.process_time() - used
guard._end()
child = resource.getrusage(resource.RUSAGE_CHILDREN)
print(took, own + child.ru_utime + child.ru_stime)
"""


def median(act, rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        act()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    import numpy as np

    from biasbound import _io
    from biasbound.data.formats import save
    from biasbound.data.formats.guard import looked_at
    from biasbound.data.trajectories import Trajectories

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        path = Path(folder) / "a"
        for size in (1_000, 10_000_000):
            text = "x" * size
            waiting = median(lambda text=text: _io.write_text(path, text), rounds)
            with mock.patch.object(os, "fsync", return_value=None):
                quick = median(lambda text=text: _io.write_text(path, text), rounds)
            print(f"write {size:>10,} bytes: {1e3 * waiting:8.2f} ms with fsync, {1e3 * quick:8.2f} ms without")
        fields = np.random.default_rng(0).normal(size=(20, 50, 2, 64, 64)).astype(np.float32)
        good = Path(folder) / "a.h5"
        save(Trajectories.from_array(fields, dt=0.1, channels=["u", "v"]), good)
        called = [sys.executable, "-c", FIRST, str(good)]
        runs = [subprocess.run(called, capture_output=True, text=True, check=True) for _ in range(min(5, rounds))]
        wall, cpu = (statistics.median(float(run.stdout.split()[i]) for run in runs) for i in (0, 1))
        print(f"first HDF5 file of a process: {wall:.3f} s, {cpu:.3f} s of processors; load {os.getloadavg()[0]:.1f}")
        looked_at(good)

        def touched() -> None:
            os.utime(good)
            looked_at(good)

        print(f"another file: {1e3 * median(touched, rounds):.2f} ms")
        print(f"the same file again: {1e3 * median(lambda: looked_at(good), rounds):.3f} ms")


if __name__ == "__main__":
    main()
