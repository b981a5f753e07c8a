"""What every family of random views promises."""

import pytest
import torch
from torch import Tensor

from openworld.data import augment
from openworld.data.images import load_dataset
from openworld.data.problem import to_tensor
from openworld.rng import generator

every_family = pytest.mark.parametrize("family", augment.FAMILIES.values(), ids=augment.FAMILIES)


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Noise, and the images that rounding would first push out of [0, 1]: all black and all white."""
    noise = torch.randint(0, 256, (64, 3, 32, 32), generator=generator(0, "noise"), dtype=torch.uint8)
    return torch.cat([noise, torch.zeros_like(noise), torch.full_like(noise, 255)])


@every_family
def test_views_are_floats_from_zero_to_one_of_the_same_shape(family, images):
    views = family(images, generator(0, "views"))
    assert views.dtype == torch.float32
    assert views.shape == images.shape
    assert views.min() >= 0
    assert views.max() <= 1


@every_family
def test_the_same_generator_gives_the_same_views(family, images):
    torch.manual_seed(1)
    first = family(images, generator(0, "views"))
    torch.manual_seed(2)
    assert torch.equal(first, family(images, generator(0, "views")))
    assert not torch.equal(first, family(images, generator(1, "views")))


@every_family
def test_the_images_stay_as_they_were(family, images):
    before = images.clone()
    family(images, generator(0, "views"))
    assert torch.equal(images, before)


@every_family
def test_every_sample_is_drawn_by_itself(family, images):
    views = family(images[:1].expand(64, -1, -1, -1), generator(0, "views"))
    # a pure shift is one of 81: a few samples may share theirs
    assert len(views.unique(dim=0)) > 48


def centre_and_mean(picture: Tensor) -> Tensor:
    grid, mass = torch.arange(8.0), picture.sum()
    return torch.stack([(picture.sum(dim=1) @ grid) / mass, (picture.sum(dim=0) @ grid) / mass, picture.mean()])


def test_the_mean_digit_stays_where_it_was():
    digits = to_tensor(load_dataset("digits").train.pixels, torch.device("cpu"))
    before = centre_and_mean(digits.float().mean(dim=(0, 1)) / 255)
    after = centre_and_mean(augment.digits_views(digits, generator(0, "views")).mean(dim=(0, 1)))
    assert ((before - after).abs() < torch.tensor([0.1, 0.1, 0.03])).all()


def test_resized_crops_lie_within_the_image_and_the_scale():
    size, draw = 32, augment.Draws(torch.empty(4000), generator(0, "crops"))
    width, height = augment._crop_size(draw, size, smallest_area=0.5)
    area, shape = width * height / size**2, width / height
    assert max(width.max(), height.max()) <= size
    assert torch.equal(width, width.round())
    assert torch.equal(height, height.round())
    # each side is rounded by half a pixel at most
    assert ((width + 0.5) * (height + 0.5) >= 0.5 * size**2).all()
    assert ((width + 0.5) / (height - 0.5) >= 3 / 4).all()
    assert ((width - 0.5) / (height + 0.5) <= 4 / 3).all()
    assert area.min() < 0.52
    assert area.max() > 0.98
    assert shape.log().mean().abs() < 0.02


def test_half_of_the_crops_are_mirrored():
    ramp = torch.linspace(0, 255, 32).to(torch.uint8).expand(2000, 3, 32, 32)
    draw = augment.Draws(ramp, generator(0, "mirror"))
    views = augment.crop_and_flip(ramp.float() / 255, draw, padding=0, smallest_area=0.5)
    is_mirrored = views[:, 0, 16, 0] > views[:, 0, 16, -1]
    assert 0.45 < is_mirrored.float().mean() < 0.55
