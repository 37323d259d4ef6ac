"""CPU seconds of `biasbound --help`, beside a bare interpreter: python benchmarks/startup.py"""

import resource
import statistics
import subprocess
import sys

COMMANDS = {"python -c pass": ["-c", "pass"], "biasbound --help": ["-m", "biasbound", "--help"]}


def cpu_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


times: dict[str, list[float]] = {name: [] for name in COMMANDS}
for _ in range(7):  # interleaved, so that a noisy neighbour hits both
    for name, arguments in COMMANDS.items():
        times[name].append(cpu_seconds(arguments))
for name, values in times.items():
    print(f"{name:18s} median {statistics.median(values):.3f} s, worst {max(values):.3f} s of CPU")
