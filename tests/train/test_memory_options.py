"""Less memory for the same training: parts of a batch, activations computed again, and bf16 where σ does not need more."""

import pytest
import torch
from small_fit import MODELS, same, trainer, weights
from toys import advected, diffusion, seeded

from biasbound.models.model import Recipe
from biasbound.nets import NETS, NetSpec
from biasbound.train.recompute import blocks, recomputing


def gradient(run):
    return torch.cat([p.grad.flatten() for p in run.model.parameters()])


@pytest.mark.parametrize("name", MODELS)
def test_parts_of_a_batch_add_up_to_its_gradient(name):
    """Every sample has its own noise and level wherever it is computed, so that only the order of sums differs."""
    whole, parts = (trainer({"accumulate": n, "clip": None}, name) for n in (1, 4))
    losses = [run.update() for run in (whole, parts)]
    torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-7)
    ours, theirs = gradient(parts), gradient(whole)
    assert (ours - theirs).norm() < 1e-5 * theirs.norm()
    assert whole.progress.ledger == parts.progress.ledger


@pytest.mark.long
@pytest.mark.parametrize("told", [{"accumulate": 4}, {"precision": "bf16"}, {"recompute": True}])
def test_a_training_goes_on_exactly_with_every_option(told, tmp_path):
    told = told | {"updates": 16}
    at_once = trainer(told, "proxy").run()
    trainer(told, "proxy", folder=tmp_path).run(9)
    assert same(weights(at_once.averaged), weights(trainer(told, "proxy", folder=tmp_path).run().averaged))


def unet(points=16):
    torch.manual_seed(0)
    spec = NetSpec("unet", 1, 1, (points,), ("periodic",), {"width": 8, "multipliers": [1, 1]})
    return diffusion(spec.resolved().build(True), scale=0.6)


@pytest.mark.long
def test_bf16_trains_as_well_as_float32():
    """Weights, levels, noise and estimates keep float32: after a short training errors agree within 2 %."""
    x, y = advected(64, seed=1).unbind(1)
    errors = []
    for precision in ("float32", "bf16"):
        run = trainer({"updates": 150, "lr": 0.01, "ema": 0.9, "precision": precision}, unet()).run()
        assert {p.dtype for p in run.averaged.parameters()} == {torch.float32}
        assert run.model.low is False
        with torch.no_grad():
            errors.append((run.averaged.advance(x, seeded(2)) - y).square().mean().sqrt().item())
    assert errors[1] == pytest.approx(errors[0], rel=0.02)
    assert errors[1] != errors[0]
    assert errors[0] < 0.3 * (x - y).square().mean().sqrt()


def test_in_bf16_the_network_alone_is():
    """What comes out of the network is bf16, what goes in and every estimate and error are float32."""
    seen, made = {}, unet()
    made.recipe = Recipe(unroll=1, between="proxy")
    made.net.unet.head.register_forward_hook(lambda module, given, found: seen.update(inside=found.dtype))
    for name in ("output", "estimate", "objective"):
        call = getattr(made, name)

        def noted(*told, name=name, call=call):
            found = call(*told)
            seen[name] = found.dtype
            return found

        setattr(made, name, noted)
    assert trainer({"precision": "bf16"}, made).update().dtype == torch.float32
    assert seen.pop("inside") == torch.bfloat16
    assert seen == dict.fromkeys(("output", "estimate", "objective"), torch.float32)


# --- activations that are computed again ----------------------------------------------------------------


def kept_by(net, *inputs):
    """Output, gradients, and bytes that are kept for the gradient."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        found = net(*inputs)
    held = sum(kept.values())
    return found, torch.autograd.grad(found.square().sum(), list(net.parameters())), held


@pytest.mark.parametrize("name", NETS)
def test_activations_computed_again_change_no_bit_and_take_half_the_memory(name):
    torch.manual_seed(0)
    net = NetSpec(name, 1, 1, (32,), ("periodic",), {}).resolved().build(True)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.1)
    inputs = torch.randn(16, 1, 32), torch.randn(16, 1, 32), torch.randn(16)
    y, slopes, held = kept_by(net, *inputs)
    with recomputing(net):
        again, same_slopes, less = kept_by(net, *inputs)
    assert torch.equal(y, again)
    assert all(map(torch.equal, slopes, same_slopes))
    assert less < 0.6 * held
    assert not any("forward" in vars(module) for module in net.modules())


def test_blocks_are_what_a_network_has_several_of():
    inner = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()) for _ in range(3)]
    net = torch.nn.Sequential(*inner, torch.nn.Linear(2, 1))
    assert blocks(net) == inner
    assert blocks(inner[0]) == []
