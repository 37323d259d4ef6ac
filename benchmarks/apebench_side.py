"""What runs inside APEBench's own environment, for `apebench.py`: its data, and its scores.

    python -P apebench_side.py data FOLDER           train.npy (50, 51, 1, 160) and test.npy (30, 201, 1, 160)
    python -P apebench_side.py score FOLDER FILE …   the scores of error fields (S, K, C, N), as one JSON line

A file holds prediction − truth of the K frames after the initial one, S test trajectories, as bytes and their scale.
"""

import json
import sys
from pathlib import Path

import apebench
import jax
import numpy as np
import pandas as pd

UP_TO = 100  # steps of the published score


def scenario():
    return apebench.scenarios.difficulty.KuramotoSivashinsky()


def data(folder: Path) -> None:
    made = scenario()
    for name, fields in (("train", made.get_train_data()), ("test", made.get_test_data())):
        np.save(folder / f"{name}.npy", np.asarray(fields, dtype=np.float32))
        told = {"dt": 1.0, "channels": ["u"], "domain": [[0.0, 1.0]], "boundary": ["periodic"]}
        (folder / f"{name}.json").write_text(json.dumps(told))


def scored(folder: Path, name: str, error: np.ndarray) -> dict[str, object]:
    """By the scenario's own metric, step by step, and by APEBench's own mean over steps."""
    truth = np.load(folder / "test.npy")[:, 1:][:, : error.shape[1]]
    metric = scenario().get_metric_fns()["mean_nRMSE"]
    steps = np.asarray(jax.vmap(metric, in_axes=1)(truth + error.astype(np.float32), truth))
    table = pd.DataFrame({"net": name, "time_step": np.arange(1, len(steps) + 1), "mean_nRMSE": steps})
    whole = apebench.aggregate_gmean(table, up_to=UP_TO, grouping_cols=["net"])
    return {"name": name, "score": float(whole["gmean_mean_nRMSE"].iloc[0]), "one_step": float(steps[0])}


def main() -> None:
    what, folder, *files = sys.argv[1], Path(sys.argv[2]), *map(Path, sys.argv[3:])
    if what == "data":
        data(folder)
        return
    test = np.load(folder / "test.npy")
    rows = [scored(folder, "persistence", test[:, :1] - test[:, 1 : UP_TO + 1])]
    for file in files:
        kept = np.load(file)
        rows.append(scored(folder, file.stem, kept["bytes"] * kept["scale"]))
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
