"""Every operation, sample by sample, against Pillow."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps

from openworld.data import image_ops as ops

SIZE = 32


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    """Smooth images with noise: plain noise would hide errors of position, plain gradients errors of value."""
    rng = np.random.default_rng(0)
    waves = rng.uniform(0, 255, (6, 4, 4, 3)).astype(np.uint8)
    smooth = np.stack([np.array(Image.fromarray(wave).resize((SIZE, SIZE), Image.BICUBIC)) for wave in waves])
    return (smooth.astype(int) + rng.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8)


def to_batch(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def pillow(pixels: np.ndarray, operation) -> torch.Tensor:
    """The operation applied to each image by itself: operation(image, number)."""
    results = [np.array(operation(Image.fromarray(image), number)) for number, image in enumerate(pixels)]
    return to_batch(np.stack(results))


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, levels: float) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() * 255 <= levels


FACTORS = torch.tensor([0.6, 0.8, 1.0, 1.1, 1.25, 1.4])


def test_brightness(pixels):
    ours = ops.adjust_brightness(to_batch(pixels), FACTORS)
    assert_close(ours, pillow(pixels, lambda im, b: ImageEnhance.Brightness(im).enhance(float(FACTORS[b]))), 1)


def test_contrast(pixels):
    # Pillow rounds the mean to a whole level
    ours = ops.adjust_contrast(to_batch(pixels), FACTORS)
    assert_close(ours, pillow(pixels, lambda im, b: ImageEnhance.Contrast(im).enhance(float(FACTORS[b]))), 1.5)


def test_saturation(pixels):
    ours = ops.adjust_saturation(to_batch(pixels), FACTORS)
    assert_close(ours, pillow(pixels, lambda im, b: ImageEnhance.Color(im).enhance(float(FACTORS[b]))), 1.5)


def test_hue(pixels):
    shifts = torch.tensor([-0.1, -0.05, 0.0, 0.02, 0.07, 0.5])

    def shift(image: Image.Image, number: int) -> Image.Image:
        hsv = np.array(image.convert("HSV")).astype(int)
        hsv[..., 0] = (hsv[..., 0] + round(float(shifts[number]) * 256)) % 256
        return Image.fromarray(hsv.astype(np.uint8), "HSV").convert("RGB")

    # Pillow keeps hue and saturation as bytes: a step of hue is six levels of a channel, and two are rounded
    difference = (ops.shift_hue(to_batch(pixels), shifts) - pillow(pixels, shift)).abs() * 255
    assert difference.max() <= 10
    assert difference.mean() <= 1.5


def test_hue_by_zero_or_a_full_turn_changes_nothing(pixels):
    batch = to_batch(pixels)
    for shift in (0.0, 1.0):
        torch.testing.assert_close(ops.shift_hue(batch, torch.full((6,), shift)), batch, atol=1e-5, rtol=0)


def test_solarize(pixels):
    thresholds = [0, 50, 100, 128, 200, 256]
    ours = ops.solarize(to_batch(pixels), torch.tensor(thresholds) / 255)
    assert_close(ours, pillow(pixels, lambda im, b: ImageOps.solarize(im, thresholds[b])), 0.01)


def test_equalize(pixels):
    flat = pixels.copy()
    flat[0] = 17  # one level only: nothing to spread
    flat[1, :, :, 0] = 3
    assert_close(ops.equalize(to_batch(flat)), pillow(flat, lambda im, _: ImageOps.equalize(im)), 0.01)


def test_resized_crop(pixels):
    starts, lengths = [0, 3, 7, 10, 0, 5], [32, 20, 25, 22, 17, 27]
    tops, heights = starts[::-1], lengths[::-1]
    ours = ops.resample(
        to_batch(pixels),
        ops.window(torch.tensor(tops), torch.tensor(heights), SIZE),
        ops.window(torch.tensor(starts), torch.tensor(lengths), SIZE),
    )

    def crop(image: Image.Image, b: int) -> Image.Image:
        part = image.crop((starts[b], tops[b], starts[b] + lengths[b], tops[b] + heights[b]))
        return part.resize((SIZE, SIZE), Image.BILINEAR)

    assert_close(ours, pillow(pixels, crop), 1)


def test_padded_crop_and_mirror(pixels):
    shifts = torch.tensor([-4, -1, 0, 1, 2, 4])
    grid = torch.arange(SIZE)
    positions = (grid + shifts[:, None]).float()
    ours = ops.resample(to_batch(pixels), positions, positions.flip(1))

    def crop(image: Image.Image, b: int) -> Image.Image:
        shift = int(shifts[b])
        moved = image.crop((shift, shift, SIZE + shift, SIZE + shift))  # Pillow fills with zero beyond the edge
        return ImageOps.mirror(moved)

    assert_close(ours, pillow(pixels, crop), 0.01)
