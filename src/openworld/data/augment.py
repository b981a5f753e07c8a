"""Random views: batched, with draws for each sample, on the device of the samples.

A view is a function of the sample and of what is drawn for its place in the batch. The image families follow
the code of the paper's authors. Shapes: B samples of D features, or of C x H x W pixels; images are square.
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
"""How far colour jitter goes, on each side of no change."""
BLUR = (0.1, 2.0)
"""The range of a blur's standard deviation, in pixels."""
NOISE, DROPPED = 0.2, 0.1
"""What stands for augmentation where nothing is known of the features: noise of a fifth of their spread hides what is
small, and one in ten that is missing keeps a network from leaning on any of them alone."""


@dataclass(frozen=True)
class Family:
    """The views of one kind of data."""

    draw: Callable[[Tensor, Generator], Tensor]
    """(samples, source) -> the numbers that decide their views."""
    view: Callable[[Tensor, Tensor], Tensor]
    """(uint8 images (B, C, H, W) or float features (B, D), numbers) -> one view of each; images in [0, 1]."""
    plain: Callable[[Tensor], Tensor]
    """The view by which samples are judged: no randomness."""

    def random(self, samples: Tensor, source: Generator) -> Tensor:
        return self.view(samples, self.draw(samples, source))


def family(name: str, mean: Tensor, std: Tensor, size: int | None = None) -> Family:
    """The family by its name; mean and std, of each channel or feature, are those of the training set.

    `size` is the side of its random views in pixels, where it is to be another than the family's own.
    """
    if name == "features":
        return Family(draw_for_features, partial(features_view, mean=mean, std=std), plain=Tensor.float)
    chosen = IMAGE_FAMILIES[name]
    return chosen if size is None else replace(chosen, view=partial(chosen.view, size=size))


def draw_for_features(features: Tensor, source: Generator) -> Tensor:
    """(2, B, D): a normal number for each entry, and one in [0, 1)."""
    shape, device = features.shape, features.device
    normal = torch.randn(shape, generator=source, device=device)
    return torch.stack([normal, torch.rand(shape, generator=source, device=device)])


def features_view(features: Tensor, numbers: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Gaussian noise on every entry; some entries are lost, and the mean stands in for them."""
    normal, share = numbers
    return torch.where(share < DROPPED, mean, features.float() + NOISE * std * normal)


@compilable
def digits_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    """What differs between two hands that write the same digit: turn, shear, scale, shift, and pressure."""
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
    draw = Draws(numbers)
    pixels = padded_or_resized_crop(images, draw, 0.5, size)
    pixels = colour_jitter(pixels, draw, share=0.6)
    pixels = apply_to(draw.chance(0.1), ops.solarize, pixels, draw.share())
    return apply_to(draw.chance(0.1), ops.equalize, pixels)


@compilable
def simclr_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    """Views that differ more: what is left in common has to be the object.

    They are smaller than the image, since what they show is: at the image's own side they would enlarge it, by a third
    on average, and cost nearly twice as much (docs/log.md).
    """
    draw, whole = Draws(numbers), images.shape[2]
    sides = resized_sides(draw, whole, smallest_area=0.2)
    smaller = crop_and_flip(images, draw, sides, room=whole - sides, size=size or whole * 3 // 4)
    pixels = colour_jitter(smaller, draw, share=0.8)
    return apply_to(draw.chance(0.2), ops.grayscale, pixels)


@compilable
def tiny_view(images: Tensor, numbers: Tensor, size: int | None = None) -> Tensor:
    draw = Draws(numbers)
    return jitter_gray_blur(padded_or_resized_crop(images, draw, 0.5, size), draw)


@compilable
def photos_view(images: Tensor, numbers: Tensor, smallest_area: float, size: int | None = None) -> Tensor:
    draw, stored = Draws(numbers), images.shape[2]
    sides = resized_sides(draw, stored, smallest_area)
    cropped = crop_and_flip(images, draw, sides, room=stored - sides, size=size or shown(stored))
    return jitter_gray_blur(cropped, draw)


def as_floats(images: Tensor) -> Tensor:
    return images / 255


def centre_crop(images: Tensor) -> Tensor:
    size = shown(images.shape[2])
    start = (images.shape[2] - size) // 2
    return as_floats(images[:, :, start : start + size, start : start + size])


def shown(stored: int) -> int:
    """The side that the network sees of a stored photo: 224 pixels of 256."""
    return stored * 7 // 8


def draw_for_images(images: Tensor, source: Generator) -> Tensor:
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
    """Draws for each sample of a batch, from (MOST, B) numbers in [0, 1) that were drawn at once."""

    MOST = 40
    """Enough for one view by any family."""

    def __init__(self, numbers: Tensor):
        self._numbers, self._each = numbers, numbers.unbind()
        self._taken = 0

    def share(self) -> Tensor:
        """(B,) numbers in [0, 1)."""
        self._taken += 1
        return self._each[self._taken - 1]

    def shares(self, count: int) -> Tensor:
        """(count, B)."""
        self._taken += count
        assert self._taken <= self.MOST, "a family that draws more must raise Draws.MOST"
        return self._numbers[self._taken - count : self._taken]

    def uniform(self, low: float, high: float) -> Tensor:
        return self.share() * (high - low) + low

    def chance(self, probability: float) -> Tensor:
        return self.share() < probability


def apply_to(chosen_B: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """The images, with a change made to the chosen ones by their parameters; `images` may be overwritten."""
    # what is compiled is the same for all batches, so that it cannot follow the number of the chosen
    make = _change_chosen if images.device.type == "cpu" and not torch.compiler.is_compiling() else _change_all
    return make(chosen_B, change, images, *parameters)


def _change_chosen(chosen_B: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """No work is wasted."""
    chosen = chosen_B.nonzero()[:, 0]
    if not len(chosen):  # of which some changes cannot make anything
        return images
    changed = change(*(batch.index_select(0, chosen) for batch in (images, *parameters)))
    return images.index_copy_(0, chosen, changed)


def _change_all(chosen_B: Tensor, change: Callable[..., Tensor], images: Tensor, *parameters: Tensor) -> Tensor:
    """Work is wasted, but nobody waits: to learn which are chosen, the host would have to wait for the device."""
    return torch.where(chosen_B.view(-1, 1, 1, 1), change(images, *parameters), images)


def padded_or_resized_crop(images: Tensor, draw: Draws, smallest_area: float, size: int | None) -> Tensor:
    """Half of the samples are padded and cropped, half are cropped and resized; by default to the images' own side."""
    whole = images.shape[2]
    is_padded = draw.chance(0.5)
    sides = resized_sides(draw, whole, smallest_area).masked_fill_(is_padded, whole)
    return crop_and_flip(images, draw, sides, whole - sides + is_padded * (whole // 8 * 2), size or whole)


def resized_sides(draw: Draws, size: int, smallest_area: float, tries: int = 10) -> Tensor:
    """(2, B) height and width of a crop: the first of ten draws of area and shape that fits into the image."""
    area = draw.shares(tries) * (size**2 * (1 - smallest_area)) + size**2 * smallest_area
    log_shape = (draw.shares(tries) - 0.5) * (2 * math.log(4 / 3))
    sides = (area * torch.stack([-log_shape, log_shape]).exp_()).sqrt_().round_()
    fits = sides.amax(dim=0) <= size
    first = fits.to(torch.uint8).argmax(dim=0)
    return sides.gather(1, first.expand(2, 1, -1))[:, 0].clamp(max=size)


def crop_and_flip(images: Tensor, draw: Draws, sides_2B: Tensor, room: Tensor, size: int) -> Tensor:
    """Crops of these sides, moved by whole pixels within the room around the middle; half of them are mirrored."""
    # a product of floats may be rounded up to the limit, which is one too many
    steps = (draw.shares(2) * (room + 1)).floor_().minimum(room)
    middles = (images.shape[2] - room) / 2 + steps
    height, width = sides_2B
    mirrored_or_not = torch.copysign(width, draw.share() - 0.5)
    return ops.crop(as_floats(images), middles, torch.stack([height, mirrored_or_not]), size)


def colour_jitter(pixels: Tensor, draw: Draws, share: float) -> Tensor:
    """A share of the samples changes in brightness, contrast, saturation and hue, each in an order of its own."""
    adjustments = [
        ops.brightness(draw.uniform(1 - BRIGHTNESS, 1 + BRIGHTNESS)),
        ops.contrast(draw.uniform(1 - CONTRAST, 1 + CONTRAST)),
        ops.saturation(draw.uniform(1 - SATURATION, 1 + SATURATION)),
    ]
    hue, times = draw.uniform(-HUE, HUE), draw.shares(4)
    times_B3, order_B3 = times[:3].T.sort(dim=1)
    blends_B33 = torch.stack(adjustments, dim=1).gather(1, order_B3[:, :, None].expand(-1, -1, 3))
    is_before_hue_B3 = times_B3 < times[3][:, None]
    return apply_to(draw.chance(share), _jitter, pixels, blends_B33, is_before_hue_B3, hue)


def _jitter(pixels: Tensor, blends_B33: Tensor, is_before_hue_B3: Tensor, hue_B: Tensor) -> Tensor:
    """The blends that come before the shift of hue, the shift, and the blends that come after it.

    Hue is the dearest of the four, and so it is computed once, not once for each place it may take.
    """
    for is_due, weights in zip(is_before_hue_B3.unbind(dim=1), blends_B33.unbind(dim=1), strict=True):
        pixels = apply_to(is_due, ops.blend, pixels, weights)
    pixels = ops.shift_hue(pixels, hue_B)
    for is_due, weights in zip((~is_before_hue_B3).unbind(dim=1), blends_B33.unbind(dim=1), strict=True):
        pixels = apply_to(is_due, ops.blend, pixels, weights)
    return pixels


def jitter_gray_blur(pixels: Tensor, draw: Draws) -> Tensor:
    pixels = colour_jitter(pixels, draw, share=0.5)
    pixels = apply_to(draw.chance(0.2), ops.grayscale, pixels)
    blur = partial(ops.gaussian_blur, reach=math.ceil(3 * BLUR[1]))
    return apply_to(draw.chance(0.2), blur, pixels, draw.uniform(*BLUR))


# Stronger views ---------------------------------------------------------------------------------------------

TURN, SHEAR, SHIFT = math.pi / 6, 0.3, 0.6
"""How far a warp goes at most: an angle, and shares of half a side."""


def draw_to_strengthen(rows: int, source: Generator) -> Tensor:
    return torch.rand((10, rows), generator=source, device=source.device)


@compilable
def strengthen(views: Tensor, numbers: Tensor) -> Tensor:
    """Views that show less: perhaps a warp, perhaps other colours, and a hole.

    To be trained on with labels that were found on the views as they were: after FixMatch (Sohn et al., NeurIPS 2020),
    with one operation of each of the two kinds where RandAugment draws any two.
    """
    draw = Draws(numbers)
    kind, amount = (draw.share() * 5).floor(), draw.uniform(-1, 1)
    views = apply_to(draw.chance(0.6), ops.warp, views.clone(), affine_map(kind, amount))
    factor, kind, levels = draw.uniform(0.1, 1.9), (draw.share() * 4).floor(), 16 << (draw.share() * 4).long()
    views = apply_to(draw.chance(0.6), recolour, views, kind, factor, levels)
    side, middles = draw.share() * (views.shape[2] / 2), draw.shares(2) * views.shape[2]
    return ops.cut_out(views, middles, side)


def affine_map(kind_B: Tensor, amount_B: Tensor) -> Tensor:
    """(B, 2, 3): each sample is turned, sheared along one of the sides, or shifted along one of them."""
    kinds = torch.arange(5, device=kind_B.device)[:, None]
    turn, shear_x, shear_y, shift_x, shift_y = ((kind_B == kinds) * amount_B).unbind()
    cos, sin = (turn * TURN).cos(), (turn * TURN).sin()
    rows = [
        torch.stack([cos, shear_x * SHEAR - sin, shift_x * SHIFT], dim=1),
        torch.stack([shear_y * SHEAR + sin, cos, shift_y * SHIFT], dim=1),
    ]
    return torch.stack(rows, dim=1)


def recolour(pixels: Tensor, kind_B: Tensor, factor_B: Tensor, levels_B: Tensor) -> Tensor:
    """Each sample changes in brightness, contrast, saturation, or the number of its levels."""
    changes = torch.stack([change(factor_B) for change in (ops.brightness, ops.contrast, ops.saturation)])
    chosen_B3 = changes[kind_B.clamp(max=2).long(), torch.arange(len(kind_B), device=kind_B.device)]
    has_fewer_levels = (kind_B == 3).view(-1, 1, 1, 1)
    return torch.where(has_fewer_levels, ops.posterize(pixels, levels_B), ops.blend(pixels, chosen_B3))
