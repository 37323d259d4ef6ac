"""What was found by hand after the eight findings: each failed before."""

import gc
import json
import os
import signal
import socket
import warnings

import h5py
import numpy as np
import pytest
from commands import inputs
from lines import nonsense
from odd import child
from records import ROW, everything
from sealed import seal

from biasbound import cli
from biasbound._io import check_yaml
from biasbound.cli import main
from biasbound.core.schedule import LEVELS, Schedule, linear
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories
from biasbound.metrics.rows import read_rows
from biasbound.registry import imported
from biasbound.study.config import DataConfig
from biasbound.study.parsing import presets, read_config
from biasbound.study.stages.data import Place, entry_of


def test_a_damaged_config_ends_no_program(tmp_path):
    """`read_config` used to call `sys.exit`, which took the caller's process with it."""
    path = tmp_path / "c.yaml"
    path.write_text("- 1\n")
    with pytest.raises(ValueError, match=r"c\.yaml"):
        read_config(path)


@pytest.mark.parametrize("text", ["train: {updates: 5, updates: 6}", "title: a\ntrain: {}\ntitle: b"])
def test_a_key_that_stands_twice(text, tmp_path, capsys):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    assert main(["run", str(tmp_path / "r"), "--config", str(path), "--dry-run"]) == 2
    assert "stands twice" in capsys.readouterr().err


def test_equal_keys_of_different_mappings_and_equal_values_are_fine():
    check_yaml("a: &a {x: 1, y: a}\nb: {x: 1, <<: *a}\nc: [x, x, {x: x}]\n? [x]\n: x")


@pytest.mark.parametrize("sigma", [["0.1", "0.2"], [False, 0.5], [i / (2 * LEVELS) for i in range(1, LEVELS + 2)]])
def test_levels_of_a_file_are_numbers_and_not_too_many(sigma, tmp_path):
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"format": "biasbound.schedule", "version": 1, "sigma": sigma, "meta": {}}))
    with pytest.raises(ValueError, match=r"s\.json: its noise levels must be a list of numbers"):
        Schedule.load(path)


@pytest.mark.parametrize("steps", [5, [1], [{"to": [1]}], {"a": 1}, [{"to": linear(3).sigma[0], "bias": "x"}]])
def test_notes_of_another_writer(steps, tmp_path):
    """Schedules that come from azula note a number of steps, and `schedule show` ended with an internal error."""
    Schedule(linear(3).sigma, {"steps": steps}).save(tmp_path / "s.json")
    assert main(["schedule", "show", str(tmp_path / "s.json")]) == 0


@pytest.mark.parametrize("name", ["seed", "step", "nfe", "updates", "ledger"])
def test_rows_count_from_zero(name, tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(ROW | {"method": "direct", name: -5}) + "\n")
    with pytest.raises(ValueError, match=rf"results.jsonl, line 1 .*{name}"):
        read_rows(path)


def test_a_batch_larger_than_the_data(tmp_path, capsys):
    """It was refused by the training, and the dry run sorted a billion numbers first."""
    words = ["--preset", "ks-smoke", "--dry-run", "--jobs", "1", "--train.batch", "1000000000"]
    assert main(["run", str(tmp_path / "r"), *words]) == 2
    assert "train.batch is 1000000000" in capsys.readouterr().err


def test_a_prediction_does_not_replace_what_it_reads(tmp_path):
    good = inputs(tmp_path / "good")
    before = (good / "waves.h5").read_bytes()
    code, said = child(("predict", "e", "--data", "waves.h5", "--steps", "2", "--force", "--out", "./waves.h5"), good)
    assert code == 2
    assert "--out waves.h5 is the file that is read" in said
    assert (good / "waves.h5").read_bytes() == before


def test_a_coordinate_larger_than_its_store(tmp_path):
    fields = np.random.default_rng(0).normal(size=(2, 4, 1, 8)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.1), tmp_path / "z.zarr")
    path = tmp_path / "z.zarr" / "time" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shape": [1 << 28]}))
    with pytest.raises(ValueError, match=r"time: found an array of shape \(268435456,\)"):
        load(tmp_path / "z.zarr")


def test_the_list_of_nonsense_has_a_hundred_lines():
    assert len({tuple(line) for line, _ in nonsense()}) >= 100


def test_the_seal_kills_whoever_asks_for_a_socket():
    """The filter under which the long attack runs: sockets to other machines are deadly, those of this one are not."""
    ends = []
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        if (pid := os.fork()) == 0:
            try:
                sealed = seal()
                socket.socket(family).close()
                os._exit(0 if sealed else 7)
            finally:
                os._exit(99)
        ends.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    assert ends in ([0, -signal.SIGSYS, -signal.SIGSYS], [7, 7, 7])


def test_every_preset_has_each_key_once():
    for path in presets().values():
        check_yaml(path.read_text())


def test_what_a_kill_left_beside_thinned_data_is_removed(tmp_path):
    for name in ("train.h5", "raw-train.h5"):
        (tmp_path / name).touch()
    entry_of(DataConfig(), "train", Place(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["train.h5"]


def test_a_store_with_several_damaged_arrays_prints_no_traceback(tmp_path, caplog):
    """zarr opens all at once: of the second failure its event loop told the terminal."""
    fields = np.random.default_rng(0).normal(size=(2, 4, 1, 8)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.1), tmp_path / "z.zarr")
    for path in (tmp_path / "z.zarr").glob("*/zarr.json"):
        path.write_text("true")
    with pytest.raises(ValueError, match=r"z\.zarr"):
        load(tmp_path / "z.zarr")
    gc.collect()
    assert caplog.text == ""


def test_no_thread_can_start(monkeypatch, capsys):
    def refused(argv):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(cli, "_called", refused)
    assert main(["status", "x"]) == 2
    assert "not enough memory" in capsys.readouterr().err


OVER = [
    ("score", "p.npy", "--truth", "waves.h5", "--out", "p.npy"),
    ("export", "e", "--out", "e/config.json"),
    ("schedule", "export", "l.json", "--format", "csv", "--out", "./l.json"),
    ("schedule", "make", "linear", "--out", "waves.h5"),
    ("score", "p.npy", "--truth", "waves.h5", "--out", "flow.h5"),
    ("data", "convert", "waves.h5", "../good/waves.h5", "--force"),
    ("data", "info", "waves.h5", "--plot", "waves.h5", "--force"),
    ("diagnose", "e", "--data", "waves.h5", "--out", "e"),
    ("diagnose", "e", "--data", "waves.h5", "--out", "flow.h5"),
]


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return inputs(tmp_path_factory.mktemp("inputs") / "good")


@pytest.mark.parametrize("words", OVER, ids=" ".join)
def test_what_is_read_and_files_of_data_are_not_written_over(words, good):
    """`export e --out e/config.json` destroyed the emulator, `score p.npy --out p.npy` the prediction."""
    before = everything(good)
    code, said = child(words, good)
    assert code == 2, said
    assert "choose another name" in said or "is a file" in said
    assert everything(good) == before


ENDLESS = [
    ("schedule", "front", "e", "--data", "waves.h5", "--levels", "100000000"),
    ("diagnose", "e", "--data", "waves.h5", "--levels", "100000000"),
    ("diagnose", "e", "--data", "waves.h5", "--draws", "1000000000"),
    ("predict", "e", "--data", "waves.h5", "--steps", "1000000000", "--out", "p.h5"),
    ("predict", "e", "--data", "waves.h5", "--members", "1000000000", "--out", "p.nc"),
    ("data", "ks", "--set", "frames=1000000000", "--trajectories", "1000000000", "--jobs", "1", "--out", "k.h5"),
]


@pytest.mark.parametrize("words", ENDLESS, ids=" ".join)
def test_work_without_end_is_not_begun(words, good):
    code, said = child(words, good, lambda: signal.setitimer(signal.ITIMER_PROF, 10))
    assert code == 2, said
    assert "must be at least 1 and at most" in said or "its disk has" in said


@pytest.mark.parametrize("setting", ["seed=3", "split=train", "length=1e-300", "length=Infinity", "points=-64"])
def test_settings_of_a_flow_that_were_internal_errors(setting, good):
    code, said = child(("data", "ks", "--size", "smoke", "--set", setting, "--jobs", "1", "--out", "k.h5"), good)
    assert code == 2
    assert setting.partition("=")[0] in said


def test_a_file_in_the_place_of_unfinished_data_stays(tmp_path, capsys):
    """`FILE.part` of another program was removed."""
    line = ["data", "ks", "--size", "smoke", "--trajectories", "1", "--jobs", "1", "--out", str(tmp_path / "k.h5")]
    part = tmp_path / "k.h5.part"
    part.write_text("mine")
    assert main(line) == 2
    assert part.read_text() == "mine"
    part.unlink()
    part.mkdir()
    (part / "configuration.json").write_text("{}")
    assert main(line) == 2
    assert "configuration.json is damaged" in capsys.readouterr().err


def test_a_module_that_fails_while_it_is_imported(tmp_path, monkeypatch):
    (tmp_path / "fails.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="cannot import fails:x: division by zero"):
        imported("fails:x")


@pytest.mark.parametrize(
    "words",
    [
        ("schedule", "make", "os:system", "--out", "s.json"),
        ("schedule", "make", "os:strerror", "--out", "s.json"),
        ("predict", "e", "--data", "waves.h5", "--out", "q.npy", "--constrain", "os:system"),
    ],
    ids=" ".join,
)
def test_something_else_that_was_named(words, good):
    code, said = child(words, good)
    assert code == 2
    assert "makes no" in said


@pytest.mark.parametrize("name", ["waves.h5", "e"])
def test_a_dry_run_says_that_something_is_in_the_way(name, good):
    code, said = child(("run", name, "--preset", "ks-smoke", "--dry-run", "--jobs", "1"), good)
    assert code == 2
    assert "is not a run folder" in said


def test_a_dry_run_of_a_schedule_file(good, capsys, monkeypatch):
    """The file's place stands in the method and not in its label."""
    monkeypatch.chdir(good)
    assert main(["run", "nowhere", "--preset", "ks-smoke", "--methods", "l.json-v", "--dry-run", "--jobs", "1"]) == 0
    assert "05-rollout/l-v" in capsys.readouterr().out


def test_options_of_models_are_tried_before_a_training(good):
    line = ("run", "r", "--preset", "ks-smoke", "--methods", "edm", "--dry-run", "--jobs", "1", "--baselines.options")
    for value in ("{edm: {sigma_max: -1}}", "{edm: {sigma_max: x}}"):
        code, said = child((*line, value), good)
        assert code == 2
        assert "baselines.options.edm" in said


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path, capsys):
    assert main(["run", str(tmp_path / "r"), "--config", str(tmp_path), "--dry-run"]) == 2
    assert f"{tmp_path} is not a regular file" in capsys.readouterr().err


def test_a_file_that_lost_its_dimensions_is_refused_without_a_warning(tmp_path):
    """In a fresh interpreter h5netcdf's warning stood before our sentence."""
    fields = np.random.default_rng(0).normal(size=(2, 4, 1, 8)).astype(np.float32)
    save(Trajectories.from_array(fields, dt=0.1, channels=["u"]), tmp_path / "a.nc")
    with h5py.File(tmp_path / "a.nc", "r+") as file:
        del file["u"]
        file["u"] = np.zeros((1, 9, 3), np.float32)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match=r"a\.nc: found no field"):
            load(tmp_path / "a.nc")
    assert [str(each.message) for each in told] == []
