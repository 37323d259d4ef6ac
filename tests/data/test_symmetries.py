"""Mirror images: a group of involutions, and windows that keep solving the equation."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from biasbound.data.batches import Batch
from biasbound.data.layout import Layout
from biasbound.data.symmetries import Symmetry, candidates, group, images
from biasbound.data.trajectories import Trajectories
from biasbound.flows import FLOWS
from biasbound.flows.flow import source

PLANE = Layout(
    "p", 1, 4, ("velocity_x", "velocity_y", "p"), (6, 5), 0.1, ((0.0, 1.0), (0.0, 1.0)), ("periodic", "wall")
)
FLIPS, SIGNS = [(), (0,), (1,), (0, 1)], [(), (0,), (2,), (0, 1), (0, 1, 2)]
SOME = st.sampled_from([Symmetry(axes, negative) for axes in FLIPS for negative in SIGNS])


def batch(count=7):
    made = torch.Generator().manual_seed(0)
    return Batch(torch.randn(count, 2, 3, 6, 5, generator=made), torch.randn(count, 1, 6, 5, generator=made))


def same(a, b):
    return torch.equal(a.frames, b.frames) and torch.equal(a.conditions, b.conditions)


@given(SOME)
def test_a_mirror_image_of_a_mirror_image_is_the_original_and_the_text_says_it_all(one):
    assert same(one.image(one.image(batch())), batch())
    if one != Symmetry():
        assert Symmetry.read(one.text(PLANE), PLANE) == one


@given(st.lists(SOME, max_size=4))
def test_a_group_is_closed_and_has_a_power_of_two_elements(some):
    made = group(some)
    assert made[0] == Symmetry()
    assert len({*made}) == len(made) == 2 ** int(np.log2(len(made)))
    assert {a.after(b) for a in made for b in made} == {*made}
    assert {*some} <= {*made}


def test_each_window_is_shown_by_its_own_element():
    elements, which = group([Symmetry((0,), (0,)), Symmetry((), (2,))]), np.array([0, 3, 1, 1, 2, 0, 3])
    shown, plain = images(batch(), elements, which), batch()
    for row, number in enumerate(which):
        one = Batch(plain.frames[row : row + 1], plain.conditions[row : row + 1])
        image = elements[number].image(one)
        assert torch.equal(shown.frames[row], image.frames[0])
        assert torch.equal(shown.conditions[row], image.conditions[0])


@pytest.mark.parametrize("text", ["", "z", "xx", "x:u", "x:-w", "7"])
def test_what_is_no_symmetry_of_these_fields_gets_one_sentence(text):
    with pytest.raises(ValueError, match=r"train\.symmetries"):
        Symmetry.read(text, PLANE)


@pytest.mark.parametrize("masked", [True, False])
def test_the_mask_and_static_conditions_must_be_their_own_mirror_images(masked):
    """Even along x and odd along y, so that x is a symmetry and y is not; signs alone always are."""
    field = np.cos(np.linspace(-1, 1, 6))[:, None] * np.arange(1.0, 6.0)
    told = {"mask": field > 1.5} if masked else {"static": {"depth": field}}
    data = Trajectories.from_array(np.zeros((2, 4, 3, 6, 5), np.float32), dt=0.1, **told)
    data = data if masked else data.condition_on("depth")
    for kept in (Symmetry((0,)), Symmetry((), (0,)), Symmetry((0,), (1,))):
        assert kept.checked(data) is kept
    with pytest.raises(ValueError, match=f"train.symmetries: 'y'.*{'mask' if masked else 'depth'}"):
        Symmetry((1,)).checked(data)
    assert Symmetry((1,)).broken_by(Trajectories.from_array(data.read(0, 2), dt=0.1)) is None


def test_the_image_of_a_solution_of_kuramoto_sivashinsky_solves_it():
    """The time derivative of the image is the image of the time derivative, by the equation itself."""
    assert "ks" in FLOWS
    layout = source("ks", "smoke", "train").layout
    assert Symmetry((0,), (0,)) in candidates(layout)
    n, length = 64, 32.0
    k = 2 * np.pi * np.fft.rfftfreq(n, length / n)
    u = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 1, 1, n)))

    def slope(frames):
        hat = np.fft.rfft(frames.numpy())
        linear = np.fft.irfft((k**2 - k**4) * hat, n)
        return torch.from_numpy(linear - np.fft.irfft(0.5j * k * np.fft.rfft(frames.numpy() ** 2), n))

    nothing = torch.zeros(1, 0, n)
    for one in (Symmetry((0,), (0,)), Symmetry((0,), ()), Symmetry((), (0,))):
        image = one.image(Batch(u, nothing)).frames
        gap = (slope(image) - one.image(Batch(slope(u), nothing)).frames).abs().max() / slope(u).abs().max()
        assert (gap < 1e-9) == (one == Symmetry((0,), (0,)))


def test_candidates_know_components_of_vectors():
    texts = {one.text(PLANE) for one in candidates(PLANE)}
    assert {"x:-velocity_x", "y:-velocity_y", "x", "y"} <= texts
    assert all(one.text(replace(PLANE, grid=(6,))) for one in candidates(replace(PLANE, grid=(6,))))
