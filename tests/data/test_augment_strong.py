"""Stronger augmented views: how far images are warped, recoloured and hidden."""

import math

import pytest
import torch
from torch import Tensor
from worlds import assert_about, noise_images

from openworld.data import augment
from openworld.ops import image_ops as ops
from openworld.ops.rng import generator


def numbers_of(count: int, **fixed: float) -> Tensor:
    """Return draws that change nothing: no warp, no recolouring, no hole. `fixed` overrides single draws."""
    names = ["warp_kind", "amount", "warps", "factor", "colour_kind", "levels", "recolours", "side", "row", "column"]
    usual = {"warps": 0.99, "recolours": 0.99, "side": 0.0}
    values = [fixed.get(name, usual.get(name, 0.5)) for name in names]
    return torch.tensor(values)[:, None].expand(-1, count).clone()


def test_nothing_drawn_is_nothing_changed():
    views = noise_images(4, 3, 20) / 255
    assert torch.equal(augment.strengthen(views, numbers_of(4)), views)


@pytest.mark.parametrize("channels", [1, 3])
def test_strong_views_are_drawn_by_themselves_and_leave_the_views_as_they_were(channels):
    views = noise_images(64, channels, 32) / 255
    before, numbers = views.clone(), augment.draw_to_strengthen(64, generator(0, "strong"))
    strong = augment.strengthen(views, numbers)
    assert torch.equal(views, before)
    assert strong.shape == views.shape
    assert strong.min() >= 0
    assert strong.max() <= 1
    alone = torch.cat([augment.strengthen(views[[b]], numbers[:, [b]]) for b in range(64)])
    torch.testing.assert_close(strong, alone, atol=1e-6, rtol=0)
    assert len(strong.unique(dim=0)) == 64
    assert (strong - views).abs().mean() > 0.05


def test_shares_of_warped_and_recoloured_views():
    views, count = noise_images(4000, 3, 8) / 255, 4000
    numbers = augment.draw_to_strengthen(count, generator(0, "shares"))
    numbers[7] = 0  # no hole
    warped, recoloured = numbers.clone(), numbers.clone()
    warped[6], recoloured[2] = 0.99, 0.99
    for changed in (warped, recoloured):
        is_changed = (augment.strengthen(views, changed) != views).flatten(1).any(dim=1)
        assert_about(is_changed.float().mean(), 0.6, count)


@pytest.mark.parametrize(("kind", "axis"), [(0.7, 3), (0.9, 2)])
@pytest.mark.parametrize("amount", [0.0, 0.75, 1 - 1e-7])
def test_a_shift_goes_up_to_three_tenths_of_a_side(kind, axis, amount):
    """The draws 0, 0.75 and 1 map to shifts between -6 and 6 of 20 pixels."""
    views = noise_images(3, 3, 20) / 255
    strong = augment.strengthen(views, numbers_of(3, warps=0.0, warp_kind=kind, amount=amount))
    pixels = round(12 * amount) - 6
    expected = views.roll(-pixels, dims=axis)
    empty = range(20 - pixels, 20) if pixels > 0 else range(-pixels)
    expected.index_fill_(axis, torch.tensor(list(empty)), 0.0)
    torch.testing.assert_close(strong, expected, atol=1e-4, rtol=0)


def test_a_turn_goes_up_to_a_twelfth_of_a_circle_and_a_shear_to_three_tenths():
    turn = augment.affine_map(torch.tensor([0.0, 0.0]), torch.tensor([1.0, -0.5]))
    angles = torch.atan2(turn[:, 1, 0], turn[:, 0, 0]) * 180 / math.pi
    torch.testing.assert_close(angles, torch.tensor([30.0, -15.0]))
    shear = augment.affine_map(torch.tensor([1.0, 2.0]), torch.tensor([1.0, -1.0]))
    expected = torch.tensor([[[1, 0.3, 0], [0, 1, 0]], [[1, 0, 0], [-0.3, 1, 0]]])
    torch.testing.assert_close(shear, expected)


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_each_kind_of_other_colours(kind):
    views = noise_images(3, 3, 16) / 255
    strong = augment.strengthen(views, numbers_of(3, recolours=0.0, colour_kind=kind / 4, factor=0.25, levels=0.3))
    factor = torch.full((3,), 0.1 + 0.25 * 1.8)
    expected = [
        lambda: ops.blend(views, ops.brightness(factor)),
        lambda: ops.blend(views, ops.contrast(factor)),
        lambda: ops.blend(views, ops.saturation(factor)),
        lambda: ops.posterize(views, torch.full((3,), 32.0)),
    ][kind]()
    torch.testing.assert_close(strong, expected)
    assert not torch.allclose(strong, views, atol=1e-3)


def test_a_hole_hides_up_to_a_quarter():
    views = torch.ones(2, 3, 16, 16)
    strong = augment.strengthen(views, numbers_of(2, side=1.0, row=0.5, column=0.5))
    expected = views.clone()
    expected[:, :, 4:12, 4:12] = 0.5
    assert torch.equal(strong, expected)
