import torch
from small_fit import same
from torch.optim.swa_utils import AveragedModel

from biasbound.train.average import MovingAverage


def test_the_average_and_its_state_are_those_of_torch():
    """To the bit, buffers too, so that a checkpoint of one is a checkpoint of the other."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    ours, decay = MovingAverage(model, 0.4), 0.4

    def lerp(mean, current, count):
        n = int(count)
        torch._foreach_lerp_(mean, current, 1 - min(decay, (1 + n) / (10 + n)))

    theirs = AveragedModel(model, multi_avg_fn=lerp)
    for update in range(12):
        with torch.no_grad():
            for p in model.parameters():
                p.add_(torch.randn_like(p))
            model(torch.randn(5, 3))  # moves the buffers
        ours.update()
        theirs.update_parameters(model)
        assert same(ours.state_dict(), theirs.state_dict()), update
        if update == 6:
            ours.load_state_dict(theirs.state_dict())
