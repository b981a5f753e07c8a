"""Augmented views of the CIFAR family, made image by image with Pillow. Tests and benchmarks compare ours with them."""

import math
from collections.abc import Callable
from random import Random

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from openworld.data import augment


def pillow_view(pixels: np.ndarray, rng: Random) -> np.ndarray:
    """Return a random view, (3, H, W) floats in [0, 1], of an image, (H, W, 3) uint8."""
    return np.array(changed(Image.fromarray(pixels), rng), dtype=np.float32).transpose(2, 0, 1) / 255


def changed(image: Image.Image, rng: Random) -> Image.Image:
    image = _padded_crop(image, rng) if rng.random() < 0.5 else _resized_crop(image, rng)
    if rng.random() < 0.5:
        image = ImageOps.mirror(image)
    if rng.random() < 0.6:
        image = _jitter(image, rng)
    return solarized_or_equalized(image, rng)


def solarized_or_equalized(image: Image.Image, rng: Random) -> Image.Image:
    if rng.random() < 0.1:
        image = ImageOps.solarize(image, rng.uniform(0, 255))
    if rng.random() < 0.1:
        image = ImageOps.equalize(image)
    return image


def _padded_crop(image: Image.Image, rng: Random) -> Image.Image:
    size = image.width
    padded = ImageOps.expand(image, size // 8)
    left, top = (rng.randint(0, size // 4) for _ in range(2))
    return padded.crop((left, top, left + size, top + size))


def _resized_crop(image: Image.Image, rng: Random) -> Image.Image:
    size = width = height = image.width
    for _ in range(10):
        area, shape = rng.uniform(0.5, 1) * size**2, math.exp(rng.uniform(-math.log(4 / 3), math.log(4 / 3)))
        width, height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if width <= size and height <= size:
            break
    left, top = rng.randint(0, max(0, size - width)), rng.randint(0, max(0, size - height))
    return image.crop((left, top, left + width, top + height)).resize((size, size), Image.BILINEAR)


def _jitter(image: Image.Image, rng: Random) -> Image.Image:
    def factor(reach: float) -> float:
        return rng.uniform(1 - reach, 1 + reach)

    adjustments: list[Callable[[Image.Image], Image.Image]] = [
        lambda image: ImageEnhance.Brightness(image).enhance(factor(augment.BRIGHTNESS)),
        lambda image: ImageEnhance.Contrast(image).enhance(factor(augment.CONTRAST)),
        lambda image: ImageEnhance.Color(image).enhance(factor(augment.SATURATION)),
        lambda image: _shift_hue(image, rng.uniform(-augment.HUE, augment.HUE)),
    ]
    rng.shuffle(adjustments)
    for adjust in adjustments:
        image = adjust(image)
    return image


def _shift_hue(image: Image.Image, shift: float) -> Image.Image:
    hue, saturation, value = image.convert("HSV").split()
    turned = Image.fromarray(np.array(hue) + np.uint8(round(shift * 255) % 256))  # bytes wrap around, as hue does
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")
