"""Rows survive their file, and a score leaves nothing out."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbound.metrics.intervals import Interval
from biasbound.metrics.rows import About, Row, over_seeds, read_rows, select, write_rows

ROW = Row("ks", "unet", 0, "mse", 10, 0.5, 0.4, 0.6, 1, 100, 2.5)


numbers = st.floats(allow_nan=False, allow_infinity=False)


rows = st.builds(
    Row,
    dataset=st.text(max_size=8),
    method=st.text(max_size=8),
    seed=st.integers(0, 9),
    metric=st.sampled_from(["mse", "broken", "fsd"]),
    step=st.none() | st.integers(0, 99),
    value=numbers,
    low=st.none() | numbers,
    high=st.none() | numbers,
    nfe=st.integers(0, 99),
    updates=st.integers(0, 10**9),
    seconds=numbers,
)


# --- files


@given(st.lists(rows, max_size=6))
def test_rows_come_back_as_they_were(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    write_rows(path, found)
    assert read_rows(path) == found


def test_keys_have_the_order_of_the_fields(tmp_path):
    write_rows(tmp_path / "rows.jsonl", [ROW])
    (line,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert list(json.loads(line)) == (
        ["dataset", "method", "seed", "metric", "step", "value", "low", "high", "nfe", "updates", "seconds", "ledger"]
    )


def test_a_value_that_is_not_finite_is_null_beside_its_reason(tmp_path):
    path = tmp_path / "rows.jsonl"
    lost = replace(ROW, value=None, low=None, high=None)
    with pytest.raises(ValueError, match=r"mse of unet on ks \(seed 0\) has no value"):
        write_rows(path, [lost, replace(ROW, metric="broken", seed=1)])
    assert not path.exists()
    reason = replace(ROW, metric="broken", step=None, value=2.0)
    write_rows(path, [lost, reason])
    assert '"value": null' in path.read_text()
    assert read_rows(path) == [lost, reason]
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match=r"write None"):
            replace(ROW, value=bad)


def changed(**facts):
    return json.dumps(asdict(ROW) | facts)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", r"Invalid JSON"),
        ("[1]", r"Input should be an object"),
        (changed(extra=1), r"extra: Unexpected"),
        (json.dumps({"dataset": "ks"}), r"method: Field required"),
        (changed(seed="0"), r"seed: .*integer"),
        (changed(seed=True), r"seed: .*integer"),
        (changed(nfe=1.5), r"nfe: .*integer"),
        (changed(dataset=None), r"dataset: .*string"),
        (changed(value="x"), r"value: .*number"),
        (changed(value=True), r"value: .*number"),
        (changed().replace("0.5", "NaN"), r"value: .*finite"),
        (changed().replace("0.5", "1e999"), r"value: .*finite"),
        (changed(value=10**400), r"value: .*finite"),
    ],
)
def test_a_broken_line_is_named_in_one_sentence(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{changed()}\n\n{line}\n")
    with pytest.raises(ValueError, match=rf"rows\.jsonl, line 3 is damaged \({reason}") as error:
        read_rows(path)
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"cannot read .*none\.jsonl: No such file"):
        read_rows(tmp_path / "none.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"bytes\.jsonl, line 1 is damaged"):
        read_rows(tmp_path / "bytes.jsonl")


def test_whole_numbers_are_read_as_floats(tmp_path):
    (tmp_path / "rows.jsonl").write_text(changed(value=1, seconds=2))
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert isinstance(row.value, float)
    assert isinstance(row.seconds, float)


def test_what_rows_share_is_in_each_of_them():
    about = About("ks", "unet", seed=0, nfe=1, updates=100, seconds=2.5)
    assert about.row("mse", Interval(0.5, 0.4, 0.6), step=10) == ROW
    alone = about.row("mse", np.float32(0.5), step=10)
    assert alone == replace(ROW, low=None, high=None)
    lost = about.row("mse", Interval(math.inf, math.nan, math.nan), step=10)
    assert lost == replace(ROW, value=None, low=None, high=None)
    assert asdict(about).items() <= asdict(ROW).items()


# --- selection


def test_selection_is_by_equal_fields():
    every = [ROW, replace(ROW, step=1), replace(ROW, step=None), replace(ROW, method="linear")]
    assert select(every, step=None) == [every[2]]
    assert select(every, method="unet", step=10) == [ROW]
    assert select(every) == every
    with pytest.raises(ValueError, match=r"a row has no stride"):
        select(every, stride=1)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=6))
def test_the_mean_over_seeds_is_numpys(values):
    found = over_seeds([replace(ROW, seed=i, value=v) for i, v in enumerate(values)])
    assert math.isclose(found.mean, np.mean(values), rel_tol=1e-9, abs_tol=1e-9)
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    assert math.isclose(found.spread, spread, rel_tol=1e-6, abs_tol=1e-6)
    assert (found.seeds, found.lost) == (len(values), 0)


def test_a_lost_seed_is_not_averaged_away():
    found = over_seeds([ROW, replace(ROW, seed=1, value=None)])
    assert (found.mean, found.seeds, found.lost) == (None, 2, 1)
    assert over_seeds([]) is None
    with pytest.raises(ValueError, match=r"one for each seed"):
        over_seeds([ROW, ROW])
