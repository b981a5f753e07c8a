"""Properties of every family of random augmented views."""

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from pillow_hue import pillow_hue
from sklearn.datasets import load_digits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from worlds import assert_about, noise_images

from openworld.data import augment
from openworld.ops import image_ops as ops
from openworld.ops.rng import generator

every_family = pytest.mark.parametrize("name", augment.FAMILIES)
every_image_family = pytest.mark.parametrize("name", augment.IMAGE_FAMILIES)


def family_of(name: str) -> augment.Family:
    return augment.family(name, mean=torch.full((20,), 3.0), std=torch.arange(20.0))


def samples_of(name: str, count: int = 64) -> Tensor:
    if name == "features":
        return torch.randn(count, 20, generator=generator(0, "features"))
    return noise_images(count, channels=3, size=32)


@every_family
def test_the_same_generator_gives_the_same_views(name):
    samples, random = samples_of(name), family_of(name).random
    torch.manual_seed(1)
    first = random(samples, generator(0, "views"))
    torch.manual_seed(2)
    assert torch.equal(first, random(samples, generator(0, "views")))
    assert not torch.equal(first, random(samples, generator(1, "views")))


@every_family
def test_the_samples_stay_as_they_were(name):
    samples = samples_of(name)
    before = samples.clone()
    family_of(name).random(samples, generator(0, "views"))
    assert torch.equal(samples, before)


@every_family
def test_every_sample_is_drawn_by_itself(name):
    samples = samples_of(name)[:1]
    views = family_of(name).random(samples.expand(64, *samples.shape[1:]), generator(0, "views"))
    # There are only 81 pure shifts, so a few samples may share one.
    assert len(views.unique(dim=0)) > 48


@every_family
def test_a_view_does_not_depend_on_the_other_samples(name):
    samples, random = samples_of(name), family_of(name).random
    others = samples.clone()
    others[1::2] = others[1::2].flip(1)
    views, beside_others = (random(batch, generator(0, "views")) for batch in (samples, others))
    torch.testing.assert_close(views[::2], beside_others[::2], atol=1e-6, rtol=0)


@every_image_family
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [28, 32, 64, 256])
def test_views_are_floats_from_zero_to_one_of_the_shown_size(name, channels, size):
    noise = noise_images(8, channels, size)
    # Rounding would first push black and white pixels out of [0, 1].
    images = torch.cat([noise, torch.zeros_like(noise), torch.full_like(noise, 255)])
    family = family_of(name)
    shown = size * 7 // 8 if name in ("photos", "imagenet") else size
    learnt_from = size * 3 // 4 if name == "simclr" else shown
    for view, side in ((family.random(images, generator(0, "views")), learnt_from), (family.plain(images), shown)):
        assert view.dtype == torch.float32
        assert view.shape == (24, channels, side, side)
        assert view.min() >= 0
        assert view.max() <= 1


def test_the_plain_view_is_the_image_or_its_centre():
    images = noise_images(4, channels=3, size=256)
    for name in ("digits", "cifar", "tiny"):
        assert torch.equal(family_of(name).plain(images), images / 255)
    for name in ("photos", "imagenet"):
        assert torch.equal(family_of(name).plain(images), images[:, :, 16:240, 16:240] / 255)


def centre_and_mean(picture: Tensor) -> Tensor:
    grid, mass = torch.arange(8.0), picture.sum()
    return torch.stack([(picture.sum(dim=1) @ grid) / mass, (picture.sum(dim=0) @ grid) / mass, picture.mean()])


def test_the_mean_digit_stays_where_it_was():
    digits = torch.from_numpy(load_digits().images * 255 / 16).to(torch.uint8)[:, None]
    before = centre_and_mean(digits.float().mean(dim=(0, 1)) / 255)
    after = centre_and_mean(family_of("digits").random(digits, generator(0, "views")).mean(dim=(0, 1)))
    assert ((before - after).abs() < torch.tensor([0.1, 0.1, 0.03])).all()


@pytest.mark.parametrize("smallest_area", [0.2, 0.5])
def test_resized_crops_lie_within_the_image_and_the_scale(smallest_area):
    size, draw = 32, augment.Draws(torch.rand((augment.Draws.MOST, 4000), generator=generator(0, "crops")))
    height, width = augment.resized_sides(draw, size, smallest_area)
    area, shape = width * height / size**2, width / height
    assert max(width.max(), height.max()) <= size
    assert torch.equal(width, width.round())
    assert torch.equal(height, height.round())
    # Each side is rounded by at most half a pixel.
    assert ((width + 0.5) * (height + 0.5) >= smallest_area * size**2).all()
    assert ((width + 0.5) / (height - 0.5) >= 3 / 4).all()
    assert ((width - 0.5) / (height + 0.5) <= 4 / 3).all()
    assert area.min() < smallest_area + 0.02
    assert area.max() > 0.98
    assert shape.log().mean().abs() < 0.02


def recorded_crops(monkeypatch, name: str, size: int, count: int) -> tuple[Tensor, Tensor]:
    """Return the (2, B) centres and sides of the windows that a family crops."""
    seen = []

    def crop(images: Tensor, middles: Tensor, sides: Tensor, size: int) -> Tensor:
        seen.extend((middles, sides))
        return images[:, :, :size, :size]

    monkeypatch.setattr(ops, "crop", crop)
    family_of(name).random(noise_images(1, 1, size).expand(count, -1, -1, -1), generator(0, "crops"))
    return seen[0], seen[1]


@pytest.mark.parametrize(("name", "size"), [("cifar", 32), ("cifar", 28), ("tiny", 64)])
def test_half_of_the_crops_are_padded_and_half_are_mirrored(monkeypatch, name, size):
    count, padding = 4000, size // 8
    middles, sides = recorded_crops(monkeypatch, name, size, count)
    assert_about((sides[1] < 0).float().mean(), 0.5, count)
    sides = sides.abs()
    starts = middles - sides / 2
    assert torch.equal(starts, starts.round())
    is_padded = ((starts < 0) | (starts + sides > size)).any(dim=0)
    # A padded crop that is not shifted does not cross an edge.
    assert_about(is_padded.float().mean(), 0.5 * (1 - 1 / (2 * padding + 1) ** 2), count)
    assert (sides[:, is_padded] == size).all()
    shifts = starts[:, (sides == size).all(dim=0)]
    assert set(shifts.unique().tolist()) == set(range(-padding, padding + 1))
    resized_starts, room = starts[:, ~is_padded], (size - sides)[:, ~is_padded]
    assert (resized_starts >= 0).all()
    assert (resized_starts <= room).all()
    wide = room > 0
    assert abs((resized_starts[wide] / room[wide]).mean() - 0.5) < 0.03


@pytest.mark.parametrize(("name", "smallest_area"), [("photos", 0.5), ("imagenet", 0.2)])
def test_photos_are_never_padded(monkeypatch, name, smallest_area):
    middles, sides = recorded_crops(monkeypatch, name, size=64, count=2000)
    starts, ends = middles - sides.abs() / 2, middles + sides.abs() / 2
    assert starts.min() == 0
    assert ends.max() == 64
    areas = sides.abs().prod(dim=0) / 64**2
    assert smallest_area - 0.02 < areas.min() < smallest_area + 0.02


def recorded_shares(monkeypatch, name: str, count: int) -> dict[str, float]:
    """Return the proportion of samples that get each change. Each jittered sample gets three blends."""
    made: dict[str, float] = {}

    def apply_to(chosen: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
        change_name = getattr(change, "func", change).__name__
        made[change_name] = made.get(change_name, 0) + chosen.float().mean().item()
        return augment._change_all(chosen, change, images, *parameters)

    monkeypatch.setattr(augment, "apply_to", apply_to)
    family_of(name).random(noise_images(count, 3, 8), generator(0, "shares"))
    return made


@pytest.mark.parametrize(
    ("name", "probabilities"),
    [
        ("cifar", {"_jitter": 0.6, "solarize": 0.1, "equalize": 0.1}),
        ("simclr", {"_jitter": 0.8, "grayscale": 0.2}),
        ("tiny", {"_jitter": 0.5, "grayscale": 0.2, "gaussian_blur": 0.2}),
        ("photos", {"_jitter": 0.5, "grayscale": 0.2, "gaussian_blur": 0.2}),
        ("imagenet", {"_jitter": 0.5, "grayscale": 0.2, "gaussian_blur": 0.2}),
    ],
)
def test_changes_are_made_as_often_as_stated(monkeypatch, name, probabilities):
    count = 4000
    shares = recorded_shares(monkeypatch, name, count)
    assert shares.pop("blend") == pytest.approx(3)  # each of the three once, before or after the shift of hue
    assert set(shares) == set(probabilities)
    for change, probability in probabilities.items():
        assert_about(shares[change], probability, count)


@pytest.mark.parametrize("name", ["simclr", "tiny", "photos", "imagenet"])
def test_about_a_fifth_of_the_views_of_colour_images_are_gray(name):
    count = 2000
    views = family_of(name).random(noise_images(count, 3, 16), generator(0, "gray"))
    is_gray = (views.amax(dim=1) - views.amin(dim=1)).flatten(1).amax(dim=1) < 1e-6
    assert_about(is_gray.float().mean().item(), 0.2, count)


def recorded_jitter(monkeypatch, count: int) -> tuple[Tensor, ...]:
    """Return for every sample its blends, whether each is before the hue shift, and the hue shift."""
    seen = []
    monkeypatch.setattr(augment, "_jitter", lambda pixels, *parameters: seen.extend(parameters) or pixels)
    draw = augment.Draws(torch.rand((augment.Draws.MOST, count), generator=generator(0, "jitter")))
    augment.colour_jitter(torch.zeros(count, 3, 1, 1), draw, probability=1)
    return tuple(seen)


def kinds_of(blends: Tensor) -> Tensor:
    """Return 0 for brightness, 1 for contrast, 2 for saturation, from the non-zero weights."""
    return (blends[:, :, 2] != 0).int() + 2 * (blends[:, :, 1] != 0).int()


def test_every_order_of_the_four_adjustments_is_as_likely(monkeypatch):
    count = 12000
    blends, is_before_hue, _ = recorded_jitter(monkeypatch, count)
    place_of_hue = is_before_hue.sum(dim=1)
    orders = torch.cat([kinds_of(blends), place_of_hue[:, None]], dim=1)
    for blend_order in permutations(range(3)):
        for place in range(4):
            is_this = (orders == torch.tensor([*blend_order, place])).all(dim=1)
            assert_about(is_this.float().mean(), 1 / 24, count)


def test_jitter_goes_as_far_as_stated(monkeypatch):
    blends, _, hue = recorded_jitter(monkeypatch, 8000)
    factors, kinds = blends[:, :, 0], kinds_of(blends)
    for kind, reach in enumerate((0.4, 0.4, 0.2)):
        of_kind = factors[kinds == kind]
        assert 1 - reach <= of_kind.min() < 1 - 0.99 * reach
        assert 1 + 0.99 * reach < of_kind.max() <= 1 + reach
        assert abs(of_kind.mean() - 1) < 0.02
    assert -0.1 <= hue.min() < -0.099
    assert 0.099 < hue.max() <= 0.1


def test_jitter_in_the_order_of_each_sample_is_what_pillow_makes_of_it(monkeypatch):
    count = 48
    waves = noise_images(count, 3, 4).permute(0, 2, 3, 1).numpy()
    images = [Image.fromarray(wave).resize((16, 16), Image.BICUBIC) for wave in waves]
    with monkeypatch.context() as recording:
        blends, is_before_hue, hue = recorded_jitter(recording, count)
    batch = torch.from_numpy(np.stack([np.array(image) for image in images])).permute(0, 3, 1, 2) / 255
    ours = augment._jitter(batch.clone(), blends, is_before_hue, hue)
    enhancers = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
    for b, image in enumerate(images):
        for turn in range(4):
            place_of_hue = int(is_before_hue[b].sum())
            if turn == place_of_hue:
                image = pillow_hue(image, float(hue[b]))
            if turn < 3:
                kind, factor = int(kinds_of(blends)[b, turn]), float(blends[b, turn, 0])
                image = enhancers[kind](image).enhance(factor)
        theirs = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
        difference = (ours[b] - theirs).abs() * 255
        # Pillow rounds hue to bytes, and later adjustments may enlarge the error.
        assert difference.max() <= 20
        assert difference.mean() <= 2.5


def test_noise_and_loss_of_features():
    mean, std = torch.tensor([5.0, -2.0]), torch.tensor([1.0, 10.0])
    count = 20000
    features = torch.tensor([100.0, 200.0]).expand(count, 2)
    views = augment.family("features", mean, std).random(features, generator(0, "features"))
    is_lost = views == mean
    for column in range(2):
        assert_about(is_lost[:, column].float().mean(), augment.DROPPED, count)
        kept = views[~is_lost[:, column], column]
        assert abs(kept.mean() - features[0, column]) < 0.02 * std[column]
        assert abs(kept.std() / std[column] - augment.NOISE) < 0.01
    plain = augment.family("features", mean, std).plain(features.double())
    assert plain.dtype == torch.float32
    assert torch.equal(plain, features)


class Calls(TorchDispatchMode):
    """List the torch calls that are made inside this context."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))


@pytest.fixture
def as_on_a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(augment, "apply_to", augment._change_all)


@every_image_family
def test_views_on_a_gpu_are_those_on_a_cpu(name, request):
    images = noise_images(64, channels=3, size=32)
    on_cpu = family_of(name).random(images, generator(0, "views"))
    request.getfixturevalue("as_on_a_gpu")
    torch.testing.assert_close(family_of(name).random(images, generator(0, "views")), on_cpu, atol=1e-6, rtol=0)


@every_family
@pytest.mark.usefixtures("as_on_a_gpu")
def test_on_a_gpu_the_host_never_waits_and_calls_are_few(name):
    samples, source = samples_of(name), generator(0, "views")
    with Calls() as calls:
        family_of(name).random(samples, source)
    waiting = {"nonzero", "_local_scalar_dense", "index", "masked_select", "scalar_tensor", "lift_fresh"}
    assert not waiting & set(calls.names)
    assert len(calls.names) <= 300  # the limit is the host, at a few microseconds each
