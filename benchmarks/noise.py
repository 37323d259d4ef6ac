"""What the noise of counters costs beside a network: python benchmarks/noise.py [--rounds 15]

Microseconds of CPU time per field, on one thread, all in turn: `Streams` (one counter-based stream per row, many fields
made at once), a generator per row, and one call of torch.randn. Beside them stand the network call that each field of a
rollout goes with, and the update that each field of a training goes with.
"""

from __future__ import annotations

import argparse

import torch
from throughput import CASES, Ours, Runs, Timed

from biasbound.core.streams import Streams

REPEATS = 64  # fields, as many as are made at once, so that all of them pay for it
ROLLOUT = 64  # trajectories at a time


def fields(rows: int, shape: tuple[int, ...]) -> Runs:
    like, streams = torch.zeros(rows, *shape), Streams(0, range(rows))
    each = [torch.Generator().manual_seed(i) for i in range(rows)]
    return {
        "streams": lambda: streams.draw(like),
        "rows": lambda: torch.cat([torch.randn(1, *shape, generator=one) for one in each]),
        "randn": lambda: torch.randn(like.shape),
    }


def measure(name: str, rounds: int) -> None:
    config, points, batch = CASES[name]
    shape = config.out_channels, *[points] * config.dims
    ours = Ours(config, torch.randn(batch, 3, *shape))
    wide = Ours(config, torch.randn(ROLLOUT, 3, *shape))

    @torch.inference_mode()
    def call() -> object:
        return wide.net(wide.window[:, 0], wide.window[:, 1], torch.zeros(ROLLOUT))

    for what, rows, beside in (("update", batch, ours.update()), ("call of a rollout", ROLLOUT, call)):
        drawn = Timed(fields(rows, shape), rounds, REPEATS)
        whole = Timed({"beside": beside}, max(3, rounds // 3), 2).cpu("beside")
        told = ", ".join(f"{key} {1e6 * drawn.cpu(key):.0f} µs" for key in drawn)
        more = {key: (drawn.cpu("streams") - drawn.cpu(key)) / whole for key in ("rows", "randn")}
        print(
            f"{name}, {rows} rows: {told}; {what} {1e3 * whole:.2f} ms: streams add {more['rows']:+.1%} to it instead of "
            f"a generator per row, {more['randn']:+.1%} instead of one call",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cases", nargs="+", default=["1-D small", "2-D small"], choices=list(CASES))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in options.cases:
        measure(case, options.rounds)
