"""Where compiled code is kept, and what happens without a compiler; compiling itself is PyTorch's work, and slow."""

import os
import sys

import pytest
import torch
from torch import nn

from biasbound.nets.compiled import compiled
from biasbound.train.options import FitOptions
from biasbound.train.trainer import Trainer


class Line(nn.Module):
    """A model of one weight."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 1, bias=False)
        nn.init.ones_(self.net.weight)

    def loss(self, batch, generator):
        return (self.net(batch) - batch.sum(-1, keepdim=True).square()).square().mean()


def trained(**options):
    model = Line()
    data = torch.linspace(-1, 1, 24).reshape(8, 3)
    Trainer(model, lambda i: data[i], len(data), FitOptions(updates=3, batch=4, **options)).run()
    return model.net.weight


def test_without_a_compiler_a_training_says_so_and_goes_on(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.warns(
        UserWarning, match="no C\\+\\+ compiler 'no-such-compiler' here: install one, or name it in CXX"
    ):
        found = trained(compile=True)
    assert torch.equal(found, trained())


def test_a_compiler_of_no_use_is_told_in_a_sentence_and_the_plain_network_goes_on(monkeypatch):
    """As without the headers of Python, which shows when the first code is compiled."""
    from torch._dynamo.exc import BackendCompilerFailed

    calls = []

    def failing(*inputs):
        calls.append(inputs)
        raise BackendCompilerFailed(len, RuntimeError("no Python.h\nand a hundred lines"), None)

    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: setattr(self, "_compiled_call_impl", failing))
    monkeypatch.setenv("CXX", sys.executable)
    net, x = nn.Linear(3, 1), torch.ones(2, 3)
    assert compiled(net)
    with pytest.warns(UserWarning, match=r"could not compile the network \(.*no Python.h\): mend it, or name another"):
        found = net(x)
    assert torch.equal(found, net(x))
    assert len(calls) == 1


def test_an_error_of_the_network_itself_stays_what_it_is(monkeypatch):
    def failing(*inputs):
        raise RuntimeError("sizes do not match")

    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: setattr(self, "_compiled_call_impl", failing))
    monkeypatch.setenv("CXX", sys.executable)
    net = nn.Linear(3, 1)
    compiled(net)
    with pytest.raises(RuntimeError, match="sizes do not match"):
        net(torch.ones(2, 3))


def test_a_model_without_a_network_has_nothing_to_compile():
    assert not compiled(None)


@pytest.mark.parametrize("vary", [False, True])
def test_compiled_code_is_kept_in_the_users_cache(vary, monkeypatch, tmp_path):
    """One code per size, or one for all from the start: never torch's change of mind in between."""
    asked = {}
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: asked.update(options))
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    assert compiled(nn.Linear(1, 1), sizes_vary=vary)
    assert asked == {"dynamic": vary}
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "biasbound" / "inductor")
    assert (tmp_path / "biasbound" / "inductor").is_dir()


def test_a_folder_that_was_chosen_stays(monkeypatch, tmp_path):
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: None)
    monkeypatch.setenv("CXX", sys.executable)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")  # a cache that cannot be written
    assert compiled(nn.Linear(1, 1))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "elsewhere"
