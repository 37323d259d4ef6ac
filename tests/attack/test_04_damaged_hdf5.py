"""Damaged metadata of HDF5 cost a child its life, not the program: one sentence, in seconds, in little memory."""

import gc
import os
import random
import resource
import time

import pytest
from damage import heap_size, sentence, text_length, with_heap
from data_files import flow

from biasbound.data.formats import guard, load, save


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A child that gives up sooner than the real one, so that the tests are quick."""
    guard._end()
    monkeypatch.setattr(guard, "WORK", 0.3)
    yield
    guard._end()


@pytest.mark.parametrize("size", [0, 2**64 - 1, -7, -16, -17, 2**40])
def test_sizes_in_the_heap_that_are_not(tmp_path, size):
    path = with_heap(tmp_path / "a.h5")
    heap_size(path, size)
    before, peak = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with sentence(path):
        load(path)  # what the heap holds may not be needed
    assert time.monotonic() - before < 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1 << 20  # KiB


def test_a_text_of_gigabytes(tmp_path):
    path = with_heap(tmp_path / "a.h5")
    text_length(path, -1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with sentence(path):
        load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1 << 20


def test_single_changed_bytes(tmp_path):
    """Whatever byte of the metadata is changed: values, or a sentence with the name of the file."""
    save(flow("ks"), tmp_path / "a.h5")
    whole, path, rng = (tmp_path / "a.h5").read_bytes(), tmp_path / "b.h5", random.Random(4)
    for _ in range(20):
        data = bytearray(whole)
        data[rng.randrange(2000)] = rng.choice([0, 1, 127, 128, 255])
        path.write_bytes(data)
        with sentence(path.name):
            load(path).read(0, 1)


def test_a_file_is_looked_at_once(tmp_path, monkeypatch):
    save(flow("ks"), tmp_path / "a.h5")
    load(tmp_path / "a.h5")
    asked = []
    monkeypatch.setattr(guard, "_asked", lambda path: asked.append(path) or [])
    load(tmp_path / "a.h5")
    assert asked == []
    save(flow("ks"), tmp_path / "a.h5", overwrite=True)
    load(tmp_path / "a.h5")
    assert asked == [tmp_path / "a.h5"]


def test_good_files_cost_little(tmp_path):
    save(flow("ks"), tmp_path / "a.h5")
    load(tmp_path / "a.h5")  # the child is there now
    os.utime(tmp_path / "a.h5")
    gc.collect()
    used = resource.getrusage(resource.RUSAGE_SELF)
    guard.looked_at(tmp_path / "a.h5")
    now = resource.getrusage(resource.RUSAGE_SELF)
    assert now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime < 0.3


def test_the_child_of_a_killed_reader_is_replaced(tmp_path):
    save(flow("ks"), tmp_path / "a.h5")
    guard._running().kill()
    guard._running().wait()
    assert load(tmp_path / "a.h5").shape == (3, 7, 1, 16)
