import pytest
from small_fit import options, trainer

from biasbound.train.options import learning_rate


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        ({"updates": None}, "either in updates or in epochs"),
        ({"epochs": 1.0}, "either in updates or in epochs"),
        ({"updates": -1}, "budget and lr must be above 0"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"lr": 0.0}, "lr must be above 0"),
        ({"warmup": -1}, "warmup not below"),
        ({"optimiser": "sgd"}, "no optimiser 'sgd'"),
        ({"weight_decay": -0.1}, "weight_decay must not be below 0"),
        ({"clip": 0.0}, "clip must be above 0 or none"),
        ({"ema": 1.0}, "ema is a decay"),
        ({"recompute": True, "compile": True}, "leave one of compile and recompute out"),
        ({"accumulate": 3}, "a batch of 16 cannot be divided among 1 × 3 parts"),
        ({"batch": 1000}, "batches of 1000 cannot be drawn from 256"),
    ],
)
def test_bad_options_are_named(bad, complaint):
    with pytest.raises(ValueError, match=complaint):
        trainer(bad)


def test_the_learning_rate_warms_up_and_falls_along_a_cosine():
    o = options(warmup=10, lr=1.0, lr_final=0.1)
    rates = [learning_rate(o, i, 110) for i in range(110)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[10] == 1
    assert rates[60] == pytest.approx(0.55)
    assert learning_rate(o, 110, 110) == pytest.approx(0.1)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_budget_in_epochs_is_a_number_of_updates():
    assert options(updates=None, epochs=2.0).total(256) == 32
    assert options(updates=7).total(256) == 7
