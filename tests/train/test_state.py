"""The state of an optimiser survives a checkpoint, and equal gradients give equal bits."""

import copy

import pytest
import torch
from torch import nn

from biasbound.models.weights import load_tensors, save_tensors
from biasbound.registry import find
from biasbound.train.optimisers import OPTIMISERS
from biasbound.train.state import pack, unpack


class Net(nn.Module):
    """Two layers of one shape, a kernel, vectors, a number, and a parameter that is never used."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.kernel = nn.Parameter(0.3 * torch.randn(6, 1, 3, 2))
        self.gain, self.unused = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(3))

    def forward(self, x):
        h = torch.tanh(self.second(torch.tanh(self.first(x))))
        return self.gain * h @ self.kernel.flatten(1)


def training(name, lr=0.01):
    torch.manual_seed(0)
    model = Net()
    return model, find(OPTIMISERS, name)(model.parameters(), lr, 0.01)


def train(model, optimiser, begin, end):
    for update in range(begin, end):
        x = torch.randn(16, 6, generator=torch.Generator().manual_seed(update))
        optimiser.zero_grad()
        (model(x) - x.cumsum(1)).square().mean().backward()
        optimiser.step()


def weights(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("cut", [1, 10, 17])
def test_a_checkpoint_resumes_bit_for_bit(name, cut, tmp_path):
    whole = training(name)
    train(*whole, 0, 32)
    half = training(name)
    train(*half, 0, cut)
    save_tensors(tmp_path / "half.safetensors", pack(half[0], None, half[1]), {})
    resumed = training(name)
    train(*resumed, 50, 53)  # what it knew before must not matter
    unpack(load_tensors(tmp_path / "half.safetensors")[0], resumed[0], None, resumed[1])
    train(*resumed, cut, 32)
    assert torch.equal(weights(whole[0]), weights(resumed[0]))
    ours, theirs = (pack(model, None, optimiser) for model, optimiser in (whole, resumed))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_equal_gradients_give_equal_bits(name):
    """As the processes of a divided training have them; a copied optimiser goes on alike too."""
    one, other = training(name), training(name)
    train(*one, 0, 15)
    train(*other, 0, 15)
    copied = copy.deepcopy(one)
    for each in (one, other, copied):
        train(*each, 15, 27)
    assert torch.equal(weights(one[0]), weights(other[0]))
    assert torch.equal(weights(one[0]), weights(copied[0]))


class Counting(torch.optim.SGD):
    """Keeps what those of other packages do: lists, numbers, nothing, a count in its group."""

    def keep(self, p, kept):
        self.state[p] = kept
        self.param_groups[0]["count"] = 7


KEPT = {
    "Q": [torch.arange(3.0), [], [torch.ones(2), 3]],
    "step": 12345678901,
    "beta": 0.1,
    "warm": True,
    "last": None,
    "exp_avg": torch.ones(2),
    "a.b": torch.zeros(1),
}


def test_numbers_lists_and_group_counts_survive_a_checkpoint(tmp_path):
    model = nn.Linear(2, 2, bias=False)
    saved, loaded = (Counting(model.parameters(), lr=0.1) for _ in range(2))
    saved.keep(model.weight, KEPT)
    save_tensors(tmp_path / "a.safetensors", pack(model, None, saved), {})
    unpack(load_tensors(tmp_path / "a.safetensors")[0], model, None, loaded)
    found = loaded.state[model.weight]
    assert list(map(str, sorted(found))) == sorted(KEPT)
    assert {k: (type(v), str(v)) for k, v in found.items()} == {k: (type(v), str(v)) for k, v in KEPT.items()}
    assert loaded.param_groups[0]["count"] == 7


def test_a_state_that_no_checkpoint_holds_is_named():
    model = nn.Linear(2, 2, bias=False)
    optimiser = Counting(model.parameters(), lr=0.1)
    optimiser.keep(model.weight, {"mode": "fast"})
    with pytest.raises(ValueError, match=r"optimiser\.0\.mode as a str.*use tensors, numbers"):
        pack(model, None, optimiser)
