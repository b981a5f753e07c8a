"""Random views: batched, with draws for each sample, on the device of the images.

A family maps (uint8 images, generator) to floats in [0, 1]. Shapes: B samples, H x W pixels.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from openworld.data import image_ops as ops


def digits_views(images: Tensor, source: Generator) -> Tensor:
    """What differs between two hands that write the same digit: turn, shear, scale, shift, and pressure."""
    draw = Draws(images, source)
    turn, shear = draw.uniform(-15, 15) * (math.pi / 180), draw.uniform(-0.2, 0.2)
    scale_x, scale_y = 1 / draw.uniform(0.85, 1.15), 1 / draw.uniform(0.85, 1.15)
    shift_x, shift_y = draw.uniform(-0.2, 0.2), draw.uniform(-0.2, 0.2)
    pressure = draw.uniform(-0.5, 0.5).exp()
    cos, sin = turn.cos(), turn.sin()
    rows = [
        torch.stack([scale_x * cos, scale_x * (shear * cos - sin), shift_x], dim=1),
        torch.stack([scale_y * sin, scale_y * (shear * sin + cos), shift_y], dim=1),
    ]
    grid = F.affine_grid(torch.stack(rows, dim=1), list(images.shape), align_corners=False)
    pixels = F.grid_sample(images.float() / 255, grid, align_corners=False, padding_mode="zeros")
    return pixels.clamp(0, 1) ** pressure[:, None, None, None]


def cifar_views(images: Tensor, source: Generator) -> Tensor:
    """The paper's views for CIFAR, with the parameters of its authors' code."""
    draw = Draws(images, source)
    pixels = crop_and_flip(images.float() / 255, draw, padding=4, smallest_area=0.5)
    jittered = colour_jitter(pixels, draw, brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    pixels = _where(draw.chance(0.6), jittered, pixels)
    pixels = _where(draw.chance(0.1), ops.solarize(pixels, draw.uniform(0, 1)), pixels)
    return _where(draw.chance(0.1), ops.equalize(pixels), pixels)


FAMILIES: dict[str, Callable[[Tensor, Generator], Tensor]] = {"digits": digits_views, "cifar": cifar_views}


class Draws:
    """One draw for each sample of a batch."""

    def __init__(self, images: Tensor, source: Generator):
        self.count, self.device, self.source = len(images), images.device, source

    def uniform(self, low: float, high: float, columns: int | None = None) -> Tensor:
        shape = (self.count,) if columns is None else (self.count, columns)
        return torch.rand(shape, generator=self.source, device=self.device) * (high - low) + low

    def chance(self, probability: float) -> Tensor:
        return self.uniform(0, 1) < probability

    def below(self, limit: Tensor) -> Tensor:
        """A whole number, as a float, from 0 to limit - 1 for each sample."""
        return (self.uniform(0, 1) * limit).floor().clamp(max=limit - 1)


def crop_and_flip(pixels: Tensor, draw: Draws, padding: int, smallest_area: float) -> Tensor:
    """Half of the samples are padded and cropped, half are cropped and resized; half of all are mirrored."""
    size = pixels.shape[2]
    grid = torch.arange(size, device=pixels.device)
    width, height = _crop_size(draw, size, smallest_area)
    is_resized, is_mirrored = draw.chance(0.5)[:, None], draw.chance(0.5)[:, None]
    axes = []
    for length in (height, width):
        shift = draw.below(torch.full_like(length, 2 * padding + 1)) - padding
        resized = ops.window(draw.below(size - length + 1), length, size)
        axes.append(torch.where(is_resized, resized, grid + shift[:, None]))
    rows, columns = axes
    return ops.resample(pixels, rows, torch.where(is_mirrored, columns.flip(1), columns))


def _crop_size(draw: Draws, size: int, smallest_area: float, tries: int = 10) -> tuple[Tensor, Tensor]:
    """Width and height of a resized crop: the first of ten draws of area and shape that fits into the image."""
    area = draw.uniform(smallest_area, 1, tries) * size**2
    shape = draw.uniform(-math.log(4 / 3), math.log(4 / 3), tries).exp()
    widths, heights = (area * shape).sqrt().round(), (area / shape).sqrt().round()
    fits = (widths <= size) & (heights <= size)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    return widths.gather(1, first)[:, 0].clamp(max=size), heights.gather(1, first)[:, 0].clamp(max=size)


def colour_jitter(
    pixels: Tensor, draw: Draws, brightness: float, contrast: float, saturation: float, hue: float
) -> Tensor:
    """Four adjustments in a random order for each sample."""
    adjustments = [
        (ops.adjust_brightness, draw.uniform(1 - brightness, 1 + brightness)),
        (ops.adjust_contrast, draw.uniform(1 - contrast, 1 + contrast)),
        (ops.adjust_saturation, draw.uniform(1 - saturation, 1 + saturation)),
        (ops.shift_hue, draw.uniform(-hue, hue)),
    ]
    order = draw.uniform(0, 1, len(adjustments)).argsort(dim=1)
    for turn in order.unbind(dim=1):
        before = pixels
        for number, (adjust, amount) in enumerate(adjustments):
            pixels = _where(turn == number, adjust(before, amount), pixels)
    return pixels


def _where(chosen_B: Tensor, changed: Tensor, unchanged: Tensor) -> Tensor:
    return torch.where(chosen_B[:, None, None, None], changed, unchanged)
