"""Tiny inputs that ask for gigabytes, hours or endless depth are refused in a sentence, at once."""

import json
import os
import time

import numpy as np
import pytest
import yaml
from calling import refused
from damage import declared

from biasbound._io import backed, check_yaml, listed, read_bounded, read_json
from biasbound.data.formats import load
from biasbound.study.parsing import presets, read_config

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BOMBS = {
    "brackets": "[" * 100_000,
    "braces": "{a: " * 100_000,
    "laughs": LAUGHS,
    "itself": "a: &a [*a]",
    "long": "#" * (2 << 20),
}


@pytest.fixture(autouse=True)
def at_once():
    begun = time.process_time()
    yield
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("bomb", BOMBS)
def test_yaml_that_explodes(bomb, tmp_path, capsys):
    with pytest.raises(yaml.YAMLError):
        check_yaml(BOMBS[bomb])
    path = tmp_path / "config.yaml"
    path.write_text(BOMBS[bomb])
    refused(["run", tmp_path / "run", "--config", path], capsys, str(path))
    with pytest.raises(ValueError, match=r"config\.yaml"):
        read_config(path)


def test_yaml_that_repeats_itself_a_little_is_fine():
    check_yaml("a: &a {lr: 1}\nb: *a\nc: [*a, *a]\n")
    for path in presets().values():
        check_yaml(path.read_text())


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 3000 + "]" * 3000])
def test_json_that_is_deep(text, tmp_path, capsys):
    path = tmp_path / "ladder.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="damaged"):
        read_json(path)
    refused(["schedule", "show", path], capsys, str(path))
    refused(["data", "ks", "--out", tmp_path / "a.h5", "--set", f"modes={text}"], capsys, "modes")


@pytest.mark.parametrize("shape", [(20_000, 20_000, 1, 16), (2**32, 2**32, 1, 16), (2**31, 2, 1, 16)])
def test_shapes_that_no_file_holds(shape, tmp_path, capsys):
    path = declared(tmp_path / "a.h5", shape)
    refused(["data", "info", path], capsys, str(path), "copy it again")


def test_products_are_of_python_integers(tmp_path):
    (tmp_path / "a").write_bytes(bytes(100))
    with pytest.raises(ValueError, match="in 100 bytes"):
        backed("a", (2**32, 2**32), 4, tmp_path / "a")  # 0 in 64 bits
    backed("a", (1000, 1000), 4, tmp_path / "a")


def test_an_array_whose_header_lies(tmp_path, capsys):
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (2**32, 2**32, 1, 16)}
        )
    path.with_suffix(".json").write_text(json.dumps({"dt": 1.0}))
    refused(["data", "info", path], capsys, str(path), "truncated")


@pytest.mark.parametrize("reader", [read_bounded, read_json, load])
def test_pipes_and_devices_are_not_waited_for(reader, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", type(tmp_path)("/dev/zero")):
        with pytest.raises(ValueError, match="pipe"):
            reader(path)


def test_commands_do_not_wait_for_pipes(tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    refused(["schedule", "show", tmp_path / "pipe"], capsys, "not a regular file")
    refused(["run", tmp_path / "r", "--config", tmp_path / "pipe"], capsys, "not a regular file")
    refused(["data", "info", tmp_path / "pipe"], capsys, "pipe or a device")


def test_a_folder_of_everything_is_not_data(tmp_path):
    for i in range(30):
        (tmp_path / str(i)).touch()
    assert len(listed(tmp_path)) == 30
    with pytest.raises(ValueError, match="more than 29 files"):
        listed(tmp_path, 29)


def test_a_schedule_of_a_hundred_million_levels(tmp_path, capsys):
    refused(["schedule", "make", "linear", "-T", "100000000", "--out", tmp_path / "a.json"], capsys, "-T 100000000")
