"""Image operations on batches, with a parameter for each sample; no randomness here.

Images are floats in [0, 1]. Each operation does to sample b what Pillow does to one image with parameter b.
Shapes: B samples, C channels, H x W pixels; a parameter is (B,).
"""

import torch
from torch import Tensor


def resample(images_BCHW: Tensor, rows_BH: Tensor, columns_BW: Tensor) -> Tensor:
    """Read each image at its own rows and columns, linearly in between; beyond the edge there is zero.

    Crops, flips, shifts and resized crops all are of this form: the sampling is separable, so it is two
    small matrix products.
    """
    down = _interpolation(rows_BH, images_BCHW.shape[2])[:, None]
    across = _interpolation(columns_BW, images_BCHW.shape[3])[:, None]
    return down @ images_BCHW @ across.transpose(2, 3)


def _interpolation(positions_BO: Tensor, size: int) -> Tensor:
    """(B, O, size) weights that read a row of `size` pixels at O positions."""
    pixels = torch.arange(size, device=positions_BO.device)
    return (1 - (positions_BO[:, :, None] - pixels).abs()).clamp(min=0)


def window(start_B: Tensor, length_B: Tensor, size: int) -> Tensor:
    """(B, size) positions that spread the pixels [start, start + length) over `size` pixels, as Pillow's resize."""
    steps = torch.arange(size, device=start_B.device) + 0.5
    positions = start_B[:, None] + steps * (length_B / size)[:, None] - 0.5
    return positions.clamp(start_B[:, None], (start_B + length_B - 1)[:, None])


def grayscale(images: Tensor) -> Tensor:
    """(B, 1, H, W) luma, by the weights of ITU-R 601 as in Pillow; images of one channel are gray already."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(dim=1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]


def adjust_brightness(images: Tensor, factor_B: Tensor) -> Tensor:
    return _blend(images, torch.zeros_like(images), factor_B)


def adjust_contrast(images: Tensor, factor_B: Tensor) -> Tensor:
    return _blend(images, grayscale(images).mean(dim=(2, 3), keepdim=True), factor_B)


def adjust_saturation(images: Tensor, factor_B: Tensor) -> Tensor:
    return _blend(images, grayscale(images), factor_B)


def _blend(images: Tensor, base: Tensor, factor_B: Tensor) -> Tensor:
    factor = factor_B[:, None, None, None]
    return (factor * images + (1 - factor) * base).clamp(0, 1)


def shift_hue(images: Tensor, shift_B: Tensor) -> Tensor:
    """Turn the hue by a share of the full circle; value and saturation stay, and gray has no hue."""
    if images.shape[1] == 1:
        return images
    value, lowest = images.amax(dim=1), images.amin(dim=1)
    chroma = value - lowest
    red, green, blue = images.unbind(dim=1)
    scale = 1 / chroma.clamp(min=1e-8)
    sixths = torch.where(
        value == red,
        (green - blue) * scale,
        torch.where(value == green, 2 + (blue - red) * scale, 4 + (red - green) * scale),
    )
    sixths = sixths + 6 * shift_B[:, None, None]
    channels = []
    for offset in (5, 3, 1):
        position = (offset + sixths) % 6
        channels.append(value - chroma * torch.minimum(position, 4 - position).clamp(0, 1))
    return torch.stack(channels, dim=1)


def solarize(images: Tensor, threshold_B: Tensor) -> Tensor:
    """Invert the pixels at or above the threshold."""
    return torch.where(images >= threshold_B[:, None, None, None], 1 - images, images)


def equalize(images: Tensor) -> Tensor:
    """Spread each channel's values so that their histogram is flat, on 256 levels as in Pillow."""
    levels = (images * 255).round().long().flatten(2)
    histogram = torch.zeros(*levels.shape[:2], 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, levels, torch.ones_like(levels))
    in_last_level = histogram.gather(2, levels.amax(dim=2, keepdim=True))
    step = (levels.shape[2] - in_last_level) // 255
    below = histogram.cumsum(dim=2) - histogram
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return (table.gather(2, levels).float() / 255).view_as(images)
