"""Augmentation: random views of a batch, computed on the device of the samples, with random numbers for each sample.

A view depends only on the sample and on the random numbers of its row in the batch. The image families follow the
code of the paper's authors. Shapes: B samples of D features, or of C x H x W pixels. Images are square.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.compute.compiling import compilable
from openworld.ops import image_ops as ops

BRIGHTNESS, CONTRAST, SATURATION, HUE = 0.4, 0.4, 0.2, 0.1
"""Largest change by colour jitter, in both directions from no change."""
BLUR = (0.1, 2.0)
"""Range of the standard deviation of the Gaussian blur, in pixels."""
NOISE, DROPPED = 0.2, 0.1
"""Augmentation of features whose meaning is unknown: noise of a fifth of their standard deviation hides small
differences, and a tenth of the entries is dropped so that the network does not rely on a single feature."""


VIEWS = "views"
"""Family of the features that a backbone gave for several views of each image."""


@dataclass(frozen=True)
class Family:
    """How to make random views and plain views of one kind of data."""

    draw: Callable[[Tensor, Generator], Tensor]
    """(samples, random generator) -> the random numbers that decide the views of the samples."""
    view: Callable[[Tensor, Tensor], Tensor]
    """(uint8 images (B, C, H, W) or float features (B, D), numbers) -> one view of each sample; images in [0, 1]."""
    plain: Callable[[Tensor], Tensor]
    """samples -> the views for evaluation and inference, without randomness."""

    def random(self, samples: Tensor, source: Generator) -> Tensor:
        """Return one random view of each sample."""
        return self.view(samples, self.draw(samples, source))


def family(name: str, mean: Tensor, std: Tensor, size: int | None = None) -> Family:
    """Return the family with this name.

    Args:
        name: One of `FAMILIES`, or `VIEWS`.
        mean: Mean of each channel or feature (`TrainingSet.mean`).
        std: Standard deviation of each channel or feature (`TrainingSet.std`).
        size: Side of the random views in pixels. None keeps the default of the family.
    """
    if name == VIEWS:
        return Family(draw_for_views, stored_view, plain=lambda features_BVD: features_BVD[:, 0].float())
    if name == "features":
        return Family(draw_for_features, partial(features_view, mean=mean, std=std), plain=Tensor.float)
    chosen = IMAGE_FAMILIES[name]
    return chosen if size is None else replace(chosen, view=partial(chosen.view, size=size))


def draw_for_views(features_BVD: Tensor, source: Generator) -> Tensor:
    """Draw (1, B) uniform numbers in [0, 1)."""
    return torch.rand((1, len(features_BVD)), generator=source, device=features_BVD.device)


def stored_view(features_BVD: Tensor, numbers: Tensor) -> Tensor:
    """Return (B, D) features of one of the views of each image."""
    chosen_B = (numbers[0] * features_BVD.shape[1]).long()
    return features_BVD[torch.arange(len(chosen_B), device=chosen_B.device), chosen_B].float()


def draw_for_features(features: Tensor, source: Generator) -> Tensor:
    """Draw (2, B, D) numbers: for each entry a standard normal number, and a uniform number in [0, 1)."""
    shape, device = features.shape, features.device
    normal = torch.randn(shape, generator=source, device=device)
    return torch.stack([normal, torch.rand(shape, generator=source, device=device)])


def features_view(features: Tensor, numbers: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Add Gaussian noise to every entry and replace some entries by the mean of their feature."""
    normal, uniform = numbers
    return torch.where(uniform < DROPPED, mean, features.float() + NOISE * std * normal)


@compilable
def digits_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    """Imitate different handwriting: rotate, shear, scale and shift the digit, and change the pen pressure."""
    draw = Draws(numbers)
    turn, shear = draw.uniform(-15, 15) * (math.pi / 180), draw.uniform(-0.2, 0.2)
    scale_x, scale_y = 1 / draw.uniform(0.85, 1.15), 1 / draw.uniform(0.85, 1.15)
    shift_x, shift_y = draw.uniform(-0.2, 0.2), draw.uniform(-0.2, 0.2)
    pressure = draw.uniform(-0.5, 0.5).exp()
    cos, sin = turn.cos(), turn.sin()
    rows = [
        torch.stack([scale_x * cos, scale_x * (shear * cos - sin), shift_x], dim=1),
        torch.stack([scale_y * sin, scale_y * (shear * sin + cos), shift_y], dim=1),
    ]
    shape = [*images.shape[:2], size or images.shape[2], size or images.shape[3]]
    grid = F.affine_grid(torch.stack(rows, dim=1), shape, align_corners=False)
    pixels = F.grid_sample(as_floats(images), grid, align_corners=False, padding_mode="zeros")
    return pixels.clamp(0, 1) ** pressure[:, None, None, None]


@compilable
def cifar_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    """Crop, flip and jitter the colours. Solarise or equalise a few images."""
    draw = Draws(numbers)
    pixels = padded_or_resized_crop(images, draw, 0.5, size)
    pixels = colour_jitter(pixels, draw, probability=0.6)
    pixels = apply_to(draw.chance(0.1), ops.solarize, pixels, draw.fraction())
    return apply_to(draw.chance(0.1), ops.equalize, pixels)


@compilable
def simclr_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    """Make views that differ strongly, so that two views of an image have little in common except the object.

    By default the views are smaller than the image, because they show only a part of it. Views as large as the image
    would enlarge that part, by a third on average, and cost nearly twice as much
    (docs/findings.md#finding-smaller-views).
    """
    draw, whole = Draws(numbers), images.shape[2]
    sides = resized_sides(draw, whole, smallest_area=0.2)
    smaller = crop_and_flip(images, draw, sides, room=whole - sides, size=size or whole * 3 // 4)
    pixels = colour_jitter(smaller, draw, probability=0.8)
    return apply_to(draw.chance(0.2), ops.grayscale, pixels)


@compilable
def tiny_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    """Crop, flip and jitter the colours. Turn some images gray and blur some."""
    draw = Draws(numbers)
    return jitter_gray_blur(padded_or_resized_crop(images, draw, 0.5, size), draw)


@compilable
def photos_view(images: Tensor, numbers: Tensor, smallest_area: float, size: int | None = None) -> Tensor:
    """Like `tiny_view`, but always resize the crop, by default to the size that evaluation uses."""
    draw, stored = Draws(numbers), images.shape[2]
    sides = resized_sides(draw, stored, smallest_area)
    cropped = crop_and_flip(images, draw, sides, room=stored - sides, size=size or shown(stored))
    return jitter_gray_blur(cropped, draw)


def as_floats(images: Tensor) -> Tensor:
    """Convert uint8 images to floats in [0, 1]."""
    return images / 255


def centre_crop(images: Tensor) -> Tensor:
    """Return the centre of each photo as floats in [0, 1]."""
    size = shown(images.shape[2])
    start = (images.shape[2] - size) // 2
    return as_floats(images[:, :, start : start + size, start : start + size])


def shown(stored: int) -> int:
    """Return the side of the part of a stored photo that the network sees: 224 of 256 pixels."""
    return stored * 7 // 8


def draw_for_images(images: Tensor, source: Generator) -> Tensor:
    """Draw (Draws.MOST, B) uniform numbers in [0, 1)."""
    return torch.rand((Draws.MOST, len(images)), generator=source, device=images.device)


IMAGE_FAMILIES = {
    "digits": Family(draw_for_images, digits_view, as_floats),
    "cifar": Family(draw_for_images, cifar_view, as_floats),
    "simclr": Family(draw_for_images, simclr_view, as_floats),
    "tiny": Family(draw_for_images, tiny_view, as_floats),
    "photos": Family(draw_for_images, partial(photos_view, smallest_area=0.5), centre_crop),
    "imagenet": Family(draw_for_images, partial(photos_view, smallest_area=0.2), centre_crop),
}
FAMILIES = (*IMAGE_FAMILIES, "features")


class Draws:
    """Random parameters for each sample of a batch, taken from (MOST, B) uniform numbers that were drawn at once."""

    MOST = 40
    """Random numbers for each sample, enough for one view by any family."""

    def __init__(self, numbers: Tensor):
        self._numbers, self._each = numbers, numbers.unbind()
        self._taken = 0

    def fraction(self) -> Tensor:
        """Return the next (B,) uniform numbers in [0, 1)."""
        self._taken += 1
        return self._each[self._taken - 1]

    def fractions(self, count: int) -> Tensor:
        """Return the next (count, B) uniform numbers in [0, 1)."""
        self._taken += count
        assert self._taken <= self.MOST, "this family uses more random numbers than Draws.MOST: increase it"
        return self._numbers[self._taken - count : self._taken]

    def uniform(self, low: float, high: float) -> Tensor:
        """Return (B,) uniform numbers in [low, high)."""
        return self.fraction() * (high - low) + low

    def chance(self, probability: float) -> Tensor:
        """Return (B,) booleans that are true with this probability."""
        return self.fraction() < probability


def apply_to(chosen_B: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """Apply `change` to the chosen images, each with its own parameters. This may overwrite `images`."""
    # Compiled code has fixed shapes, so it cannot select a number of images that differs between batches.
    make = _change_chosen if images.device.type == "cpu" and not torch.compiler.is_compiling() else _change_all
    return make(chosen_B, change, images, *parameters)


def _change_chosen(chosen_B: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """Change only the chosen images."""
    chosen = chosen_B.nonzero()[:, 0]
    if not len(chosen):  # some changes fail on an empty batch
        return images
    changed = change(*(batch.index_select(0, chosen) for batch in (images, *parameters)))
    return images.index_copy_(0, chosen, changed)


def _change_all(chosen_B: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """Change all images, but use only the chosen ones. Selecting them first would make the host wait for the device."""
    return torch.where(chosen_B.view(-1, 1, 1, 1), change(images, *parameters), images)


def padded_or_resized_crop(images: Tensor, draw: Draws, smallest_area: float, size: int | None) -> Tensor:
    """Pad and crop half of the samples, and crop and resize the other half, by default to the size of the images."""
    whole = images.shape[2]
    is_padded = draw.chance(0.5)
    sides = resized_sides(draw, whole, smallest_area).masked_fill_(is_padded, whole)
    return crop_and_flip(images, draw, sides, whole - sides + is_padded * (whole // 8 * 2), size or whole)


def resized_sides(draw: Draws, size: int, smallest_area: float, tries: int = 10) -> Tensor:
    """Return (2, B) heights and widths of crops: the first of `tries` random areas and shapes that fits the image."""
    area = draw.fractions(tries) * (size**2 * (1 - smallest_area)) + size**2 * smallest_area
    log_shape = (draw.fractions(tries) - 0.5) * (2 * math.log(4 / 3))
    sides = (area * torch.stack([-log_shape, log_shape]).exp_()).sqrt_().round_()
    fits = sides.amax(dim=0) <= size
    first = fits.to(torch.uint8).argmax(dim=0)
    return sides.gather(1, first.expand(2, 1, -1))[:, 0].clamp(max=size)


def crop_and_flip(images: Tensor, draw: Draws, sides_2B: Tensor, room: Tensor, size: int) -> Tensor:
    """Cut out crops of these sides, shifted at random by whole pixels within `room`, and mirror half of them."""
    # Rounding may lift the product to room + 1, which is one step too many.
    steps = (draw.fractions(2) * (room + 1)).floor_().minimum(room)
    middles = (images.shape[2] - room) / 2 + steps
    height, width = sides_2B
    mirrored_or_not = torch.copysign(width, draw.fraction() - 0.5)
    return ops.crop(as_floats(images), middles, torch.stack([height, mirrored_or_not]), size)


def colour_jitter(pixels: Tensor, draw: Draws, probability: float) -> Tensor:
    """Change brightness, contrast, saturation and hue, in a random order for each sample.

    A sample is changed with this probability.
    """
    adjustments = [
        ops.brightness(draw.uniform(1 - BRIGHTNESS, 1 + BRIGHTNESS)),
        ops.contrast(draw.uniform(1 - CONTRAST, 1 + CONTRAST)),
        ops.saturation(draw.uniform(1 - SATURATION, 1 + SATURATION)),
    ]
    hue, times = draw.uniform(-HUE, HUE), draw.fractions(4)
    times_B3, order_B3 = times[:3].T.sort(dim=1)
    blends_B33 = torch.stack(adjustments, dim=1).gather(1, order_B3[:, :, None].expand(-1, -1, 3))
    is_before_hue_B3 = times_B3 < times[3][:, None]
    return apply_to(draw.chance(probability), _jitter, pixels, blends_B33, is_before_hue_B3, hue)


def _jitter(pixels: Tensor, blends_B33: Tensor, is_before_hue_B3: Tensor, hue_B: Tensor) -> Tensor:
    """Apply the blends that come before the hue shift, then the hue shift, then the other blends.

    The hue shift is the most expensive of the four changes. This order of work computes it once, not once for each
    position that it may take.
    """
    for is_due, weights in zip(is_before_hue_B3.unbind(dim=1), blends_B33.unbind(dim=1), strict=True):
        pixels = apply_to(is_due, ops.blend, pixels, weights)
    pixels = ops.shift_hue(pixels, hue_B)
    for is_due, weights in zip((~is_before_hue_B3).unbind(dim=1), blends_B33.unbind(dim=1), strict=True):
        pixels = apply_to(is_due, ops.blend, pixels, weights)
    return pixels


def jitter_gray_blur(pixels: Tensor, draw: Draws) -> Tensor:
    """Jitter the colours of half of the samples, turn a fifth of the samples gray and blur a fifth."""
    pixels = colour_jitter(pixels, draw, probability=0.5)
    pixels = apply_to(draw.chance(0.2), ops.grayscale, pixels)
    blur = partial(ops.gaussian_blur, reach=math.ceil(3 * BLUR[1]))
    return apply_to(draw.chance(0.2), blur, pixels, draw.uniform(*BLUR))


# Stronger views ---------------------------------------------------------------------------------------------

TURN, SHEAR, SHIFT = math.pi / 6, 0.3, 0.6
"""Largest warps: an angle in radians, and fractions of half a side."""


def draw_to_strengthen(rows: int, source: Generator) -> Tensor:
    """Draw the (10, rows) uniform numbers in [0, 1) that `strengthen` needs."""
    return torch.rand((10, rows), generator=source, device=source.device)


@compilable
def strengthen(views: Tensor, numbers: Tensor) -> Tensor:
    """Augment views more strongly: warp some of them, change the colours of some, and cut a hole into each.

    A method trains on the result with pseudo-labels that it computed on the views before this step. This follows
    FixMatch (Sohn et al., NeurIPS 2020), with one operation of each of the two kinds where RandAugment draws any two.
    """
    draw = Draws(numbers)
    kind, amount = (draw.fraction() * 5).floor(), draw.uniform(-1, 1)
    views = apply_to(draw.chance(0.6), ops.warp, views.clone(), affine_map(kind, amount))
    factor, kind, levels = draw.uniform(0.1, 1.9), (draw.fraction() * 4).floor(), 16 << (draw.fraction() * 4).long()
    views = apply_to(draw.chance(0.6), recolour, views, kind, factor, levels)
    side, middles = draw.fraction() * (views.shape[2] / 2), draw.fractions(2) * views.shape[2]
    return ops.cut_out(views, middles, side)


def affine_map(kind_B: Tensor, amount_B: Tensor) -> Tensor:
    """Return (B, 2, 3) affine maps. Each one rotates, shears along one axis, or shifts along one axis."""
    kinds = torch.arange(5, device=kind_B.device)[:, None]
    turn, shear_x, shear_y, shift_x, shift_y = ((kind_B == kinds) * amount_B).unbind()
    cos, sin = (turn * TURN).cos(), (turn * TURN).sin()
    rows = [
        torch.stack([cos, shear_x * SHEAR - sin, shift_x * SHIFT], dim=1),
        torch.stack([shear_y * SHEAR + sin, cos, shift_y * SHIFT], dim=1),
    ]
    return torch.stack(rows, dim=1)


def recolour(pixels: Tensor, kind_B: Tensor, factor_B: Tensor, levels_B: Tensor) -> Tensor:
    """Change the brightness, contrast, saturation or number of colour levels of each sample."""
    changes = torch.stack([change(factor_B) for change in (ops.brightness, ops.contrast, ops.saturation)])
    chosen_B3 = changes[kind_B.clamp(max=2).long(), torch.arange(len(kind_B), device=kind_B.device)]
    has_fewer_levels = (kind_B == 3).view(-1, 1, 1, 1)
    return torch.where(has_fewer_levels, ops.posterize(pixels, levels_B), ops.blend(pixels, chosen_B3))
