"""What the page holds, without a browser: the table's numbers, no address, a bounded size."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from biasbound.metrics.rows import Row
from biasbound.report.page import page as page_text
from biasbound.report.page.payload import payload
from biasbound.report.page.rollouts import Cut, fitted, pack_error, pack_truth, rollouts
from biasbound.report.study import Study
from biasbound.report.tables import table1


class Handlers(HTMLParser):
    """Inline handlers and outside addresses of a document."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name.startswith("on") or (name in ("src", "href") and not value.startswith("#")):
                self.found.append((tag, name))


def test_the_document_has_no_handlers_and_no_addresses(study):
    text = page_text(study)
    parser = Handlers()
    parser.feed(text)
    assert parser.found == []
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in text
    assert len(text.encode()) < 3_000_000
    assert "default-src &#x27;none&#x27;" in text


ERRORS = {("mse", 1): 2e-5, ("mse_norm", 1): 3e-4, ("mse", 10): 4e-3, ("mse_norm", 10): 5e-2,
          ("one_step_mse", None): 6e-5, ("one_step_mse_norm", None): 7e-4}  # fmt: skip


def scored(dataset, method, size):
    """Rows in which no two metrics have the same value."""
    cost = {"nfe": 4, "updates": 10, "seconds": 1.0}
    return [
        Row(dataset, method, 0, metric, step, size * value, None, None, **cost)
        for (metric, step), value in ERRORS.items()
    ]


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("dataset", ["ks", "transonic", "waves"])
def test_charts_show_the_same_errors_as_the_table(dataset, measured):
    rows = [r for m, size in (("linear", 1), ("unet", 2)) for r in scored(dataset, m, size)]
    rows = [r for r in rows if measured or not r.metric.startswith("one_step")]
    told = payload(Study(Path(), dataset, dataset, rows=tuple(rows)))
    table = table1(rows)
    cells = {name: [float(line.cells[table.columns.index(name)].value) for line in table.groups[0]]
             for name in ("1-step MSE", "10-step MSE")}  # fmt: skip
    points = {point["method"]: point["mse"] for point in told["tradeoff"]}
    assert [points["unet"], points["linear"]] == pytest.approx(cells["1-step MSE"])
    curves = {s["label"]: dict(zip(s["step"], s["value"], strict=True)) for s in told["series"]["error"]}  # fmt: skip
    assert [curves["unet"][10], curves["linear"][10]] == pytest.approx(cells["10-step MSE"])
    assert ("normalised" in told["error"]) == ("normalised" in " ".join(told["table"]["notes"]))


def test_packed_errors_are_fine_near_zero():
    frame = np.array([0.0, 1e-4, -1e-3, 0.3, -1.0, np.nan, np.inf])
    error = np.stack([frame, 1e-3 * frame, 0 * np.nan_to_num(frame)])
    packed, largest = pack_error(error)
    share = np.where(packed == -128, np.nan, packed / 127)
    back = largest[:, None] * share * np.abs(share)  # as the page computes it
    for scale, row in ((1.0, back[0]), (1e-3, back[1])):  # each frame has its own scale
        assert row[0] == 0
        np.testing.assert_allclose(row[1:5], scale * frame[1:5], rtol=0.02, atol=scale / 127**2)
        assert np.isnan(row[5:]).all()
    assert not back[2].any()


def test_packed_truth_is_within_half_a_step():
    values = np.linspace(-2.0, 5.0, 997)
    packed = pack_truth(values, -2.0, 5.0)
    assert packed.min() == 0
    assert packed.max() == 254
    assert np.abs(-2 + 7 / 254 * packed - values).max() <= 7 / 254 / 2 + 1e-9
    assert pack_truth(np.array([np.nan]), 0.0, 1.0)[0] == 255


@pytest.mark.parametrize("budget", [10_000, 300_000, 1_400_000])
@pytest.mark.parametrize("planes", [((64,),), ((64, 64),), ((128, 64),), ((128, 64), (128, 32), (64, 32))])
def test_rollouts_fit_their_budget(budget, planes):
    cut = fitted(Cut(8, 5, 64, 3, 160, planes), budget)
    assert cut.size <= budget
    assert min(cut.models, cut.members, cut.trajectories, cut.quantities) >= 1


def test_the_budget_holds_for_what_is_stored(study):
    stored = rollouts(study, 4_000)
    texts = [t for p in stored["planes"] for q in p["quantities"] for t in q["data"]]
    texts += [e["data"] for m in stored["models"] for p in m["errors"] for q in p for row in q for e in row]
    assert sum(len(t) * 3 / 4 for t in texts) <= 4_000 + 2 * len(texts)
