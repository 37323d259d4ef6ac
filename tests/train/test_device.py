"""An update and an emulated step ask the device nothing.

The `meta` device has shapes but no values: what asks it for a value raises, and so does an operation on fields of two
devices. A copy from the host is only in order if the host does not wait for the device to make it.
"""

import pytest
import torch
from small_fit import DATA, MODELS, options, windows
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from toys import SCHEDULE, diffusion, frame, stirred

from biasbound.core.streams import Streams
from biasbound.data.batches import Batch
from biasbound.models.direct import Direct
from biasbound.models.emulator import Emulator
from biasbound.models.method import method
from biasbound.models.model import MODELS as KINDS
from biasbound.models.model import Frame, Settings
from biasbound.models.normalise import Normalisation
from biasbound.models.refiner import Refiner
from biasbound.models.task import Forecast
from biasbound.nets import NETS, NetSpec
from biasbound.registry import find
from biasbound.train.optimisers import OPTIMISERS
from biasbound.train.trainer import Trainer


class NoWaiting(TorchDispatchMode):
    """Refuses copies between devices that the host waits for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        places = {t.device.type for t in tree_leaves((args, kwargs, made)) if isinstance(t, torch.Tensor) and t.ndim}
        if len(places) > 1:
            assert func is torch.ops.aten._to_copy.default, f"{func} on {places}"
            assert (kwargs or {}).get("non_blocking"), f"{func} waits for the device"
        return made


def there(made):
    """A trainer's model and data on a device without values."""
    frames = 2 + made.recipe.unroll

    def data(index):
        chosen = DATA.frames[torch.as_tensor(index), :frames], DATA.conditions[torch.as_tensor(index)]
        return Batch(*(part.to("meta", non_blocking=True) for part in chosen))

    return made.to("meta"), data


@pytest.mark.parametrize("name", MODELS)
def test_an_update_asks_the_device_nothing(name):
    model, data = there(MODELS[name]())
    run = Trainer(model, data, len(DATA.frames), options(accumulate=2))
    for _ in range(2):
        with NoWaiting():
            assert run.update().is_meta


@pytest.mark.parametrize(
    "told", [{"optimiser": name} for name in OPTIMISERS] + [{"precision": "bf16"}, {"recompute": True}]
)
def test_no_option_asks_it_either(told):
    model, data = there(MODELS["proxy"]())
    run = Trainer(model, data, len(DATA.frames), options(**told))
    run.update()
    run.update()


@pytest.mark.long
@pytest.mark.parametrize("kind", [name for name in KINDS if find(KINDS, name).trained])
def test_every_kind_of_model_can_be_trained_and_asked_in_parts(kind):
    """On a device without values, and with the same gradient whether a batch is computed at once or in parts."""
    chosen = method("linear" if kind == "diffusion" else kind)
    spec = NetSpec("unet", 1, 1, (16,), ("periodic",), {"width": 8, "multipliers": [1, 1]}).resolved()

    def built(device="cpu"):
        torch.manual_seed(0)
        settings = Settings(SCHEDULE)
        return stirred(chosen.build(spec, Forecast(), 0.6, chosen.options(settings))).to(device)

    model, data = there(built())
    with NoWaiting():
        assert Trainer(model, data, len(DATA.frames), options()).update().is_meta
        assert model.advance(torch.zeros(3, 1, 16, device="meta"), Streams(0, range(3))).is_meta
    runs = [Trainer(built(), windows(2), len(DATA.frames), options(accumulate=n, clip=None)) for n in (1, 4)]
    losses = [run.update() for run in runs]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-6)
    slopes = [torch.cat([p.grad.flatten() for p in run.model.parameters() if p.grad is not None]) for run in runs]
    assert (slopes[0] - slopes[1]).norm() < 1e-4 * slopes[0].norm()


@pytest.mark.long
@pytest.mark.parametrize("name", NETS)
def test_a_step_and_a_loss_of_every_network_ask_it_nothing(name):
    net = NetSpec(name, 2, 1, (16, 16), ("periodic", "open"), {}).resolved().build(True)
    made = diffusion(net, "scaled", scale=0.5)
    mask = torch.ones(16, 16, dtype=torch.bool)
    mask[3, 4:9] = False
    made.frame = Frame(1, made.frame.task, made.frame.target, mask)
    made.register_buffer("mask", mask)
    made.to("meta")
    emulator = Emulator(made, Normalisation((0.5,), (2.0,)), ("u",), 1.0)
    x = torch.zeros(3, 1, 16, 16, device="meta")
    with NoWaiting():
        assert emulator.step(x, generator=Streams(0, range(3))).is_meta
        batch = Batch(x[:, None].expand(-1, 2, -1, -1, -1), x[:, :0])
        made.loss(batch, Streams(0, range(3))).backward()
    assert all(p.grad is not None for p in made.parameters())


def test_a_corrected_step_of_every_kind_asks_it_nothing():
    for made in (diffusion(MODELS["eps"]().net, "eps"), Refiner(MODELS["refiner"]().net, frame(0.6)), Direct(MODELS["direct residual"]().net, frame(0.6))):  # fmt: skip
        emulator = Emulator(made.to("meta"), Normalisation((0.5,), (2.0,)), ("u",), 1.0)
        states = emulator.unroll(
            torch.zeros(3, 1, 16, device="meta"), None, Streams(0, range(3)), lambda y, at: 0.9 * y
        )
        with NoWaiting():
            assert next(states).is_meta
            assert next(states).is_meta
