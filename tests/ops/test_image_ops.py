"""Every image operation, compared with Pillow or a plain reference. Each sample has its own parameters."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from pillow_hue import pillow_hue

from openworld.ops import image_ops as ops

SIZE = 32


def smooth_with_noise(size: int, channels: int) -> np.ndarray:
    """Return six smooth images with noise: noise alone would hide wrong positions, gradients alone wrong values."""
    rng = np.random.default_rng(0)
    waves = rng.uniform(0, 255, (6, 4, 4, 3)).astype(np.uint8)
    smooth = np.stack([np.array(Image.fromarray(wave).resize((size, size), Image.BICUBIC)) for wave in waves])
    return (smooth.astype(int) + rng.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8)[..., :channels]


@pytest.fixture(scope="module", params=[3, 1], ids=["colour", "gray"])
def pixels(request) -> np.ndarray:
    return smooth_with_noise(SIZE, request.param)


@pytest.fixture(scope="module")
def colours() -> np.ndarray:
    return smooth_with_noise(SIZE, 3)


def to_batch(pixels: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def pillow(pixels: np.ndarray, operation) -> torch.Tensor:
    """Apply `operation(image, number)` to each image by itself."""
    results = [np.array(operation(to_image(image), number)) for number, image in enumerate(pixels)]
    return to_batch(np.stack(results).reshape(len(pixels), *results[0].shape[:2], -1))


def to_image(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, levels: float) -> None:
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() * 255 <= levels


FACTORS = torch.tensor([0.6, 0.8, 1.0, 1.1, 1.25, 1.4])


@pytest.mark.parametrize(
    ("weights", "enhancer", "levels"),
    [
        (ops.brightness, ImageEnhance.Brightness, 1),
        (ops.contrast, ImageEnhance.Contrast, 1.5),  # Pillow rounds the mean to a whole level
        (ops.saturation, ImageEnhance.Color, 1.5),  # and the gray image to whole levels
    ],
)
def test_brightness_contrast_and_saturation(pixels, weights, enhancer, levels):
    ours = ops.blend(to_batch(pixels), weights(FACTORS))
    assert_close(ours, pillow(pixels, lambda im, b: enhancer(im).enhance(float(FACTORS[b]))), levels)


def test_one_batch_may_mix_adjustments(colours):
    """Each sample is jittered in its own order."""
    kinds = [
        (ops.brightness, ImageEnhance.Brightness),
        (ops.contrast, ImageEnhance.Contrast),
        (ops.saturation, ImageEnhance.Color),
    ] * 2
    weights = torch.cat([kind(FACTORS[[b]]) for b, (kind, _) in enumerate(kinds)])
    theirs = pillow(colours, lambda im, b: kinds[b][1](im).enhance(float(FACTORS[b])))
    assert_close(ops.blend(to_batch(colours), weights), theirs, 1.5)


def test_grayscale(pixels):
    theirs = pillow(pixels, lambda im, _: im.convert("L").convert(im.mode))
    assert_close(ops.grayscale(to_batch(pixels)), theirs, 1)


def test_hue(colours):
    shifts = torch.tensor([-0.1, -0.05, 0.0, 0.02, 0.07, 0.5])
    theirs = pillow(colours, lambda im, b: pillow_hue(im, float(shifts[b])))
    # Pillow stores hue and saturation as bytes. One step of hue is six levels of a channel, and both are rounded.
    difference = (ops.shift_hue(to_batch(colours), shifts) - theirs).abs() * 255
    assert difference.max() <= 10
    assert difference.mean() <= 1.5


def test_hue_by_zero_or_a_full_turn_changes_nothing(colours):
    batch = to_batch(colours)
    for shift in (0.0, 1.0, -2.0):
        torch.testing.assert_close(ops.shift_hue(batch, torch.full((6,), shift)), batch, atol=1e-5, rtol=0)


def test_a_third_of_a_turn_makes_red_green_and_gray_has_no_hue():
    red, green = torch.zeros(2, 3, 1, 1), torch.zeros(2, 3, 1, 1)
    red[0, 0], green[0, 1] = 1, 1
    red[1], green[1] = 0.4, 0.4
    torch.testing.assert_close(ops.shift_hue(red, torch.full((2,), 1 / 3)), green, atol=1e-5, rtol=0)
    gray = torch.rand(2, 1, 4, 4)
    assert torch.equal(ops.shift_hue(gray, torch.full((2,), 0.3)), gray)


def test_solarize(pixels):
    thresholds = [0, 50, 100, 128, 200, 256]
    ours = ops.solarize(to_batch(pixels), torch.tensor(thresholds) / 255)
    assert_close(ours, pillow(pixels, lambda im, b: ImageOps.solarize(im, thresholds[b])), 0.01)


def test_equalize(pixels):
    flat = pixels.copy()
    flat[0] = 17  # one level only: nothing to equalise
    flat[1, :, :, 0] = 3
    assert_close(ops.equalize(to_batch(flat)), pillow(flat, lambda im, _: ImageOps.equalize(im)), 0.01)


def middles_and_sides(starts: list, lengths: list) -> tuple[torch.Tensor, torch.Tensor]:
    """Return windows, rows first. Their first rows and first columns differ."""
    starts, lengths = np.array([starts[::-1], starts]), np.array([lengths[::-1], lengths])
    return torch.tensor(starts + lengths / 2).float(), torch.tensor(lengths).float()


STARTS, LENGTHS = np.array([0, 3, 7, 10, 0, 5]), np.array([32, 20, 25, 22, 17, 27])


@pytest.mark.parametrize(
    ("stored", "size"),
    [
        (32, 32),  # crops are enlarged
        (32, 28),  # some are enlarged, some shrink
        (32, 9),  # all shrink, by up to 3.6
        (64, 56),
        (256, 224),
    ],
)
@pytest.mark.parametrize("channels", [3, 1])
def test_resized_crop(stored, size, channels):
    pixels, factor = smooth_with_noise(stored, channels), stored // 32
    starts, lengths = list(STARTS * factor), list(LENGTHS * factor)
    ours = ops.crop(to_batch(pixels), *middles_and_sides(starts, lengths), size)

    def crop(image: Image.Image, b: int) -> Image.Image:
        top, height = starts[::-1][b], lengths[::-1][b]
        part = image.crop((starts[b], top, starts[b] + lengths[b], top + height))
        return part.resize((size, size), Image.BILINEAR)

    # Pillow rounds to whole levels after each of the two directions.
    assert_close(ours, pillow(pixels, crop), 1.1)


def test_padded_crop_and_mirror(pixels):
    shifts = torch.tensor([-4, -1, 0, 1, 2, 4])
    is_mirrored = torch.tensor([True, False, True, False, True, True])
    sides = torch.full((2, 6), float(SIZE))
    sides[1, is_mirrored] *= -1
    ours = ops.crop(to_batch(pixels), torch.stack([shifts, -shifts]) + SIZE / 2, sides, SIZE)

    def crop(image: Image.Image, b: int) -> Image.Image:
        top = int(shifts[b])
        moved = image.crop((-top, top, SIZE - top, SIZE + top))  # Pillow fills with zero beyond the edge
        return ImageOps.mirror(moved) if is_mirrored[b] else moved

    assert_close(ours, pillow(pixels, crop), 0.01)


def test_a_mirrored_crop_is_the_mirror_image_of_the_crop(pixels):
    middles, sides = middles_and_sides(list(STARTS), list(LENGTHS))
    signs = torch.tensor([[1.0], [-1.0]])
    plain, mirrored = (
        ops.crop(to_batch(pixels), middles, sides, 28),
        ops.crop(to_batch(pixels), middles, sides * signs, 28),
    )
    torch.testing.assert_close(mirrored, plain.flip(3), atol=1e-6, rtol=0)


SIGMAS = torch.tensor([0.1, 0.4, 0.8, 1.2, 1.6, 2.0])


def reference_blur(channel: np.ndarray, sigma: float, reach: int) -> np.ndarray:
    """Return a blur as a sum over shifted images, in two dimensions at once."""
    padded = np.pad(channel, reach, mode="edge")
    rows, columns = channel.shape
    total, weight_sum = np.zeros(channel.shape), 0.0
    for down in range(-reach, reach + 1):
        for across in range(-reach, reach + 1):
            weight = np.exp(-(down**2 + across**2) / (2 * sigma**2))
            total += weight * padded[reach + down : reach + down + rows, reach + across : reach + across + columns]
            weight_sum += weight
    return total / weight_sum


def test_blur(pixels):
    ours = ops.gaussian_blur(to_batch(pixels), SIGMAS, reach=6)
    for b, sigma in enumerate(SIGMAS.tolist()):
        for c in range(pixels.shape[3]):
            theirs = reference_blur(pixels[b, :, :, c] / 255, sigma, reach=6)
            np.testing.assert_allclose(ours[b, c].numpy(), theirs, atol=1e-5)


def test_blur_is_near_to_pillows(pixels):
    """Pillow blurs with three boxes, not a Gaussian, and rounds after each."""
    ours = ops.gaussian_blur(to_batch(pixels), SIGMAS, reach=6)
    theirs = pillow(pixels, lambda im, b: im.filter(ImageFilter.GaussianBlur(float(SIGMAS[b]))))
    difference = (ours - theirs).abs() * 255
    assert difference.max() <= 5
    assert difference.mean() <= 0.7


def every_operation(batch: torch.Tensor) -> list[torch.Tensor]:
    count = len(batch)
    parameter = torch.linspace(0.6, 1.4, 6)[:count]
    window = torch.full((2, count), 16.0), torch.full((2, count), 20.0)
    return [
        ops.crop(batch, *window, 28),
        ops.gaussian_blur(batch, parameter, reach=6),
        ops.grayscale(batch),
        ops.blend(batch, ops.contrast(parameter)),
        ops.shift_hue(batch, parameter),
        ops.solarize(batch, parameter / 2),
        ops.equalize(batch),
    ]


def test_what_becomes_of_a_sample_does_not_depend_on_the_others(pixels):
    batch = to_batch(pixels)
    for all_six, first_two in zip(every_operation(batch), every_operation(batch[:2]), strict=True):
        torch.testing.assert_close(all_six[:2], first_two, atol=1e-6, rtol=0)


def test_a_batch_may_be_empty(pixels):
    assert all(len(result) == 0 for result in every_operation(to_batch(pixels)[:0]))


def test_posterize(pixels):
    bits = [4, 5, 6, 7, 4, 8]
    ours = ops.posterize(to_batch(pixels), torch.tensor([2.0**b for b in bits]))
    assert_close(ours, pillow(pixels, lambda im, b: ImageOps.posterize(im, bits[b])), 0.01)


def test_a_warp_is_an_affine_map_with_black_beyond_the_edge(pixels):
    """The map is Pillow's: from the centre of an output pixel to a position in the input, in pixels."""
    turn, half = np.pi / 7, SIZE / 2
    cos, sin = np.cos(turn), np.sin(turn)
    maps = np.array(
        [
            [[1, 0, 0], [0, 1, 0]],
            [[1, 0, 0.25], [0, 1, 0]],
            [[1, 0, 0], [0, 1, -0.5]],
            [[1, 0.3, 0], [0, 1, 0]],
            [[1, 0, 0], [-0.2, 1, 0]],
            [[cos, -sin, 0], [sin, cos, 0]],
        ]
    )
    ours = ops.warp(to_batch(pixels), torch.from_numpy(maps).float())

    def theirs(image: Image.Image, number: int) -> Image.Image:
        (a, b, x), (c, d, y) = maps[number]
        in_pixels = (a, b, half * (1 - a - b + x), c, d, half * (1 - c - d + y))
        return image.transform(image.size, Image.Transform.AFFINE, in_pixels, Image.Resampling.BILINEAR)

    inner = slice(8, -8)  # at the edge Pillow drops a pixel that ours fades out
    middle = (slice(None), slice(None), inner, inner)
    assert_close(ours[middle], pillow(pixels, theirs)[middle], 1.5)
    assert_close(ours[:3], pillow(pixels, theirs)[:3], 1)
    assert (ours[2, :, : SIZE // 4] == 0).all()


def test_a_hole_is_gray_and_all_else_stays(colours):
    images = to_batch(colours)
    middles = torch.tensor([[8.0, 0.0, 31.9, 16.2, 16.0, 5.0], [8.0, 31.0, 4.0, 16.2, 16.0, 5.0]])
    sides = torch.tensor([4.0, 8.0, 16.0, 0.0, 5.0, 16.0])
    ours = ops.cut_out(images, middles, sides)
    for b in range(6):
        for row in range(SIZE):
            for column in range(SIZE):
                away = max(abs(row + 0.5 - middles[0, b]), abs(column + 0.5 - middles[1, b]))
                expected = torch.full((3,), 0.5) if away < sides[b] / 2 else images[b, :, row, column]
                assert torch.equal(ours[b, :, row, column], expected)
