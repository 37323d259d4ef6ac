"""A smoke study of all peers, from data to report."""

import numpy as np
import pytest
from calling import SMOKE

import biasbound
from biasbound.cli import main
from biasbound.metrics.rows import read_rows, select
from biasbound.report import figures

LABELS = {  # network calls per step, and training samples per sample of a batch
    "edm-2": (2, 1),
    "edm-heun-3": (3, 1),
    "flow-1": (1, 1),
    "recfm-2": (2, 2),
    "meanflow-residual": (1, 1.5),
    "flowrefiner": (3, 1),
    "flowrefiner-5": (5, 1),
    "member-crps": (1, None),
    "direct-dilated": (1, 1),
    "direct-fno": (1, 1),
    "linear": (4, 1),
    "linear-ode": (4, 1),
}
UPDATES, BATCH = 8, 16


@pytest.mark.long
def test_all_peers_go_from_data_to_report_in_one_study(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", {"ladder": figures.FIGURES["ladder"]})  # the others: tests/report
    told = [f"--methods={','.join(LABELS)}", "--train.updates", str(UPDATES), "--train.evaluations", "1"]
    told += ["--finetune.updates", "2", "--evaluate.gradients", "0", "--evaluate.pairs", "4", "--network.others"]
    told += ["{dilated: {width: 8, blocks: 1}, fno: {width: 8}}", "--evaluate.split", "true"]
    told += ["--rollout.members", "1", "--evaluate.members", "3"]
    assert main(["run", str(tmp_path / "run"), *SMOKE, *told]) == 0
    rows = read_rows(tmp_path / "run/results.jsonl")
    whole: list[str] = []
    for label, (calls, passes) in LABELS.items():
        row = select(rows, method=label, metric="mse", step=1)[0]
        assert row.nfe == calls
        expected = UPDATES * BATCH * passes if passes else (UPDATES + 2 * 2) * BATCH
        assert row.ledger == pytest.approx(expected, rel=0.2 if label.startswith("meanflow") else 0)
        parts = {
            p: select(rows, method=label, metric=f"split_{p}", step=5)[0].value for p in ("drift", "own", "cross")
        }
        if None not in parts.values():  # the solver may not go on from a state of so short a training
            whole.append(label)
            assert sum(parts.values()) == pytest.approx(select(rows, method=label, metric="mse_norm", step=5)[0].value)
        assert len(np.load(tmp_path / f"run/05-rollout/{label}/seed-0/prediction.npy")) == 1
        assert [r.step for r in select(rows, method=label, metric="crps")] == [
            1,
            5,
        ]  # of members that the rollout has not
    assert len(whole) > len(LABELS) / 2
    trained = {path.parent.name for path in (tmp_path / "run/03-train").glob("*/seed-0")}
    assert trained == {"edm", "flow", "recfm", "meanflow-residual", "flowrefiner", "member", "direct-dilated"} | {
        "direct-fno",
        "linear",
    }
    again = biasbound.load(tmp_path / "run/03-train/edm/seed-0/emulator")
    assert (again.nfe, again.model.sampler) == (8, "2m")
    assert "Rectified flow, 1 call" in (tmp_path / "run/07-report/table.md").read_text()
