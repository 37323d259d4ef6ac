"""Batches that are read ahead in a thread are those that are read when asked for, and training on them ends with the same
bits, also after it was stopped."""

import threading

import numpy as np
import pytest
import torch
from small_fit import DATA, MODELS, options, same, weights

from biasbound.data.batches import Ahead, Batch, Loader, Order
from biasbound.data.formats import load, save
from biasbound.data.trajectories import Trajectories
from biasbound.models.weights import load_newest
from biasbound.study.stages.material import Material
from biasbound.train.trainer import Trainer

NOTHING = torch.empty(0, 0, 1)


def numbered(index):
    """A batch that says which numbers were asked for."""
    return Batch(torch.as_tensor(np.asarray(index), dtype=torch.float32).reshape(-1, 1, 1, 1), NOTHING)


def numbers(batch):
    return batch.frames.flatten().long().tolist()


@pytest.mark.parametrize("ahead", [1, 2, 5])
def test_batches_come_in_their_order(ahead):
    batches = Ahead(Loader(numbered, lambda batch: batch, ahead=ahead), Order(10, 3, seed=4))
    for asked in [next(order) for order in [Order(10, 3, seed=4)] for _ in range(9)]:
        assert numbers(batches(asked)) == asked.tolist()


def test_a_batch_that_nobody_foretold_is_read_all_the_same():
    order = Order(10, 3)
    batches = Ahead(Loader(numbered, lambda batch: batch), Order(10, 3))
    assert numbers(batches([7, 8])) == [7, 8]
    assert numbers(batches(first := next(order))) == first.tolist()
    assert numbers(Ahead(Loader(numbered, lambda batch: batch), iter(()))([2])) == [2]


def test_the_next_batches_are_read_while_the_last_one_is_used():
    """Reading in the thread goes on without being asked; placing stays in the thread that asks."""
    order, read, beyond = Order(10, 2), [], threading.Event()

    def slowly(index):
        read.append(threading.get_ident())
        if len(read) == 3:
            beyond.set()
        return numbered(index)

    placed = []
    batches = Ahead(Loader(slowly, lambda batch: placed.append(threading.get_ident()) or batch), Order(10, 2))
    batches(next(order))
    assert beyond.wait(10)
    assert placed == [threading.get_ident()]
    assert threading.get_ident() not in read


def test_what_cannot_be_read_is_raised_where_it_is_asked_for():
    def broken(index):
        if 3 in index:
            raise ValueError("the file ends before its last frame")
        return numbered(index)

    batches = Ahead(Loader(broken, lambda batch: batch), iter([np.array([1]), np.array([3]), np.array([5])]))
    assert numbers(batches([1])) == [1]
    with pytest.raises(ValueError, match="ends before"):
        batches([3])
    assert numbers(batches([5])) == [5]


def run(data, until=None, parts=1, **more):
    torch.manual_seed(0)
    return Trainer(MODELS["v"](), data, len(DATA.frames), options(accumulate=parts), **more).run(until)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_training_that_reads_ahead_ends_with_the_same_bits_also_when_resumed(tmp_path, parts):
    here = []  # threads that read

    def read(i):
        here.append(threading.get_ident())
        return Batch(DATA.frames[torch.as_tensor(i), :2], DATA.conditions[torch.as_tensor(i)])

    ahead = Loader(read, lambda batch: batch)
    plain = run(read, parts=parts, folder=tmp_path / "plain")
    here.clear()
    early = run(ahead, parts=parts, folder=tmp_path / "early")
    assert threading.get_ident() not in here  # all that was asked for had been foretold
    assert same(weights(plain.averaged), weights(early.averaged))
    run(ahead, 33, parts, folder=tmp_path / "cut")
    run(ahead, parts=parts, folder=tmp_path / "cut")
    assert same(*(load_newest(tmp_path / name)[0] for name in ("early", "cut")))


def test_only_what_is_on_disk_is_read_ahead(tmp_path, monkeypatch):
    """In memory reading is a copy, and a thread costs more; the batches are the same."""
    made = Trajectories.from_array(np.random.default_rng(0).normal(size=(4, 9, 1, 16)), dt=0.1, name="own")
    save(made, tmp_path / "own.h5")
    here, _ = Material(lambda split: made).batches(1)
    monkeypatch.setattr("biasbound.study.stages.material.IN_MEMORY", 0)
    there, items = Material(lambda split: load(tmp_path / "own.h5")).batches(1)
    assert (here.ahead, there.ahead, items) == (0, 2, 32)
    index = np.array([3, 0, 31])
    torch.testing.assert_close(here(index).frames, there(index).frames)
