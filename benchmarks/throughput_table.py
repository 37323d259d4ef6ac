"""All bars of speed in one table: python benchmarks/throughput_table.py [--skip executors …] [--rounds 20]

Runs benchmarks/throughput.py (with --compile), solvers.py, two_processes.py --speed and executors.py one after the other, each in
a process of its own, and ends with one line per bar. Let the machine be idle, and run it twice: the first time compiles.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SHAPES = ("1-D small", "2-D small", "2-D large")
SOLVERS = ("ks", "kolmogorov-64", "kolmogorov-128")  # as solvers.py calls them, in its order


@dataclass
class Bar:
    """What is to be reached, at least or (`most`) at most, and what was found: eager, and compiled where there is one."""

    what: str
    bar: float
    most: bool = False
    found: list[float] = field(default_factory=list)

    @property
    def reached(self) -> str:
        """In which of the ways that a user has."""
        met = [one <= self.bar if self.most else one >= self.bar for one in self.found]
        if not met or all(met) or not any(met):
            return "not run" if not met else "yes" if all(met) else "NO"
        return "eager only" if met[0] else "compiled only"

    def line(self) -> str:
        told = [f"{one:.2f}" if math.isfinite(one) else "–" for one in self.found] + ["–"] * (2 - len(self.found))
        return f"| {self.what} | {'≤' if self.most else '≥'} {self.bar:g} | {told[0]} | {told[1]} | {self.reached} |"


def bars() -> dict[str, Bar]:
    """The bars by the names that throughput.py gives its figures."""
    made = {
        "training 1-D small": Bar("training over a plain loop, 1-D small", 2.0),
        "training 2-D small": Bar("training over a plain loop, 2-D small", 1.6),
        "gemm 1-D small": Bar("share of the GEMM rate, 1-D small", 0.4),
        "gemm 2-D small": Bar("share of the GEMM rate, 2-D small", 0.55),
        "gemm 2-D large": Bar("share of the GEMM rate, 2-D large", 0.6),
        "rollout 1-D small": Bar("rollout over a plain loop, 1-D small", 2.0),
        "rollout 2-D small": Bar("rollout over a plain loop, 2-D small", 2.0),
    }
    made |= {f"soap {shape}": Bar(f"SOAP over Adam, {shape}", 1.25, most=True) for shape in SHAPES}
    made |= {f"proxy {shape}": Bar(f"proxy over teacher forcing, {shape}", 2.2, most=True) for shape in SHAPES}
    made |= {name: Bar(f"{name} over exponax", 1.0) for name in SOLVERS}
    made |= {"processes": Bar("2 processes over 1, 2-D large", 1.7)}
    return made | {name: Bar(f"rows of ks-smoke as local, {name}", 1.0) for name in ("submitit", "dask")}


def show(found: dict[str, Bar]) -> None:
    print("\n| | bar | eager | compiled | reached |\n|---|---|---|---|---|")
    for bar in found.values():
        print(bar.line())


def ran(*words: object) -> str:
    """What a script of this folder says, on the screen too."""
    process = subprocess.Popen(
        [sys.executable, "-u", *(str(w) for w in words)], cwd=HERE, stdout=subprocess.PIPE, text=True
    )
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    if process.wait():
        sys.exit(f"{words[0]} failed")
    return "".join(lines)


def measured(found: dict[str, Bar], rounds: int, skip: list[str]) -> None:
    with tempfile.TemporaryDirectory() as home:
        figures = Path(home) / "figures.json"
        if "throughput" not in skip:
            ran("throughput.py", "--compile", "--brief", "--cases", *SHAPES, "--rounds", rounds, "--json", figures)
            for name, values in json.loads(figures.read_text()).items():
                if name in found:
                    found[name].found = values
        if "solvers" not in skip:
            ran("solvers.py", "--only", *SOLVERS, "--json", figures)
            for name, row in zip(SOLVERS, json.loads(figures.read_text())["rows"], strict=True):
                found[name].found = [row["contestants"]["exponax"]["ratio"]]
        if "processes" not in skip:
            told = re.search(r"^two .*over one process ([\d.]+)", ran("two_processes.py", "--speed"), re.MULTILINE)
            assert told is not None
            found["processes"].found = [float(told[1])]
        if "executors" not in skip:
            for name, same, of in re.findall(
                r"^(\w+): (\d+) of (\d+) rows", ran("executors.py", Path(home) / "runs"), re.MULTILINE
            ):
                found[name].found = [int(same) / int(of)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="of throughput.py, a multiple of ten (default 20)")
    parser.add_argument("--skip", nargs="+", default=[], choices=["throughput", "solvers", "processes", "executors"])
    given = parser.parse_args()
    table = bars()
    measured(table, given.rounds, given.skip)
    show(table)
