"""Image operations on batches, with parameters for each sample; no randomness here.

Images are floats in [0, 1]. Each operation does to sample b what Pillow does to one image with parameter b.
Nothing here makes the host wait for the device: no branch depends on a value.
Shapes: B samples, C channels, H x W pixels, O pixels of output; a parameter is (B,).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop(images: Tensor, middles_2B: Tensor, sides_2B: Tensor, size: int) -> Tensor:
    """Cut a window out of each image and resize it to `size` x `size`, as Pillow's crop and bilinear resize do.

    Windows are given by their middle and their side, rows first; a negative side mirrors. Beyond the edge of the
    image there is zero: a crop from a padded image is a window that reaches over the edge. A window larger than
    the output is smoothed as it shrinks, and no pixel outside of it is read.
    """
    middles, sides = middles_2B[:, :, None], sides_2B[:, :, None]
    pixels = torch.arange(0.5, images.shape[2], device=images.device)  # a pixel lies half a step from its edges
    outputs = torch.arange(0.5 - size / 2, size / 2, device=images.device)  # from the middle
    widths = (sides.abs() / size).clamp_(min=1)
    is_outside = (pixels - middles).abs_() > sides.abs() / 2
    sources = (pixels / widths).masked_fill_(is_outside, torch.inf)  # infinitely far: no weight
    centres = torch.addcmul(middles, outputs, sides, value=1 / size).div_(widths)
    # (2, B, O, H), of the wrong sign: that saves a pass, and the division puts it right
    negative = (centres[:, :, :, None] - sources[:, :, None]).abs_().sub_(1).clamp_(max=0)
    # at the edge of a window weight is lost, but never half of it; beyond the edge of the image there is none
    weights = negative.div_(negative.sum(dim=3, keepdim=True).clamp_(max=-0.5))
    return _separable(images, *weights).clamp_(0, 1)


def gaussian_blur(images: Tensor, sigma_B: Tensor, reach: int) -> Tensor:
    """A Gaussian cut off at `reach` pixels; beyond the edge the last pixel goes on.

    Pillow's GaussianBlur comes close to it by three box blurs, with the same edges.
    """
    down, across = (_gaussian(size, sigma_B, reach) for size in images.shape[2:])
    return _separable(F.pad(images, [reach] * 4, mode="replicate"), down, across).clamp_(0, 1)


def _gaussian(size: int, sigma_B: Tensor, reach: int) -> Tensor:
    """(B, size, size + 2 * reach) weights of the pixels of a padded row."""
    pixels = torch.arange(-reach, size + reach, device=sigma_B.device)
    distances = pixels - pixels[reach:-reach, None]
    heights = (-0.5 * (distances / sigma_B[:, None, None]) ** 2).exp().masked_fill(distances.abs() > reach, 0)
    return heights / heights.sum(dim=2, keepdim=True)


def _separable(images: Tensor, down_BOH: Tensor, across_BOW: Tensor) -> Tensor:
    """Weighted sums of the rows and columns of each image: two small matrix products."""
    wide = images.flatten(1, 2) @ across_BOW.transpose(1, 2)
    return down_BOH[:, None] @ wide.unflatten(1, images.shape[1:3])


def luma(images: Tensor) -> Tensor:
    """(B, 1, H, W), by the weights of ITU-R 601 as in Pillow; images of one channel are gray already."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def grayscale(images: Tensor) -> Tensor:
    return luma(images).expand_as(images)


def blend(images: Tensor, weights_B3: Tensor) -> Tensor:
    """The sum of the image, its luma and its mean luma by their weights, cut to [0, 1].

    Changes of brightness, contrast and saturation all are of this form, so that a batch may mix them.
    """
    own, of_luma, of_mean = weights_B3.reshape(-1, 3, 1, 1, 1).unbind(dim=1)
    gray = luma(images)
    base = torch.addcmul(of_mean * gray.mean(dim=(2, 3), keepdim=True), gray, of_luma)
    return torch.addcmul(base, images, own).clamp_(0, 1)


def brightness(factor_B: Tensor) -> Tensor:
    """The weights by which `blend` brings an image nearer to black, or further from it."""
    nothing = torch.zeros_like(factor_B)
    return torch.stack([factor_B, nothing, nothing], dim=1)


def contrast(factor_B: Tensor) -> Tensor:
    """The weights by which `blend` brings an image nearer to its mean luma, or further from it."""
    return torch.stack([factor_B, torch.zeros_like(factor_B), 1 - factor_B], dim=1)


def saturation(factor_B: Tensor) -> Tensor:
    """The weights by which `blend` brings an image nearer to its gray self, or further from it."""
    return torch.stack([factor_B, 1 - factor_B, torch.zeros_like(factor_B)], dim=1)


def shift_hue(images: Tensor, shift_B: Tensor) -> Tensor:
    """Turn the hue by a share of the full circle; value and saturation stay, and gray has no hue."""
    if images.shape[1] == 1:
        return images
    value, lowest = images.amax(dim=1, keepdim=True), images.amin(dim=1, keepdim=True)
    chroma = value - lowest
    red, green, blue = images.split(1, dim=1)
    # from red to its opposite first green or blue rises, then red falls, then the third rises: all add up
    from_red = (green + blue).sub_(red).sub_(lowest).div_(chroma.clamp(min=1e-8)).add_(1)
    hue = from_red.copysign_(green - blue).div_(6).add_(shift_B.view(-1, 1, 1, 1))
    # a channel lacks the whole chroma where the hue is within a sixth of its opposite, nothing two sixths from there
    opposites = torch.arange(3, 9, 2, device=images.device).view(3, 1, 1) / 6
    away = hue - opposites
    lacks = away.sub_(away.round()).abs_().mul_(-6).add_(2).clamp_(0, 1)
    return torch.addcmul(value, chroma, lacks, value=-1)


def solarize(images: Tensor, threshold_B: Tensor) -> Tensor:
    """Invert the pixels at or above the threshold."""
    return torch.where(images >= threshold_B.view(-1, 1, 1, 1), 1 - images, images)


def equalize(images: Tensor) -> Tensor:
    """Spread each channel's values so that their histogram is flat, on 256 levels as in Pillow."""
    levels = (images * 255).round_().long().flatten(2)
    histogram = torch.zeros(*levels.shape[:2], 256, dtype=torch.int64, device=images.device)
    histogram.scatter_add_(2, levels, torch.ones_like(levels))
    in_last_level = histogram.gather(2, levels.amax(dim=2, keepdim=True))
    step = (levels.shape[2] - in_last_level) // 255
    below = histogram.cumsum(dim=2) - histogram
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return (table / 255).gather(2, levels).view_as(images)


def posterize(images: Tensor, levels_B: Tensor) -> Tensor:
    """Leave so many levels in each channel, a power of two; values are rounded down."""
    step = (256 / levels_B).view(-1, 1, 1, 1)
    return (images * 255).round_().div_(step).floor_().mul_(step).div_(255)


def warp(images: Tensor, affine_B23: Tensor) -> Tensor:
    """Move every pixel by an affine map from output to input, both in [-1, 1]; zero comes in from beyond the edge."""
    grid = F.affine_grid(affine_B23, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False, padding_mode="zeros")


def cut_out(images: Tensor, middles_2B: Tensor, side_B: Tensor) -> Tensor:
    """A gray square instead of the pixels around the middle, rows first; it may reach over the edge."""
    rows, columns = (torch.arange(0.5, size, device=images.device) for size in images.shape[2:])
    half = side_B[:, None] / 2
    hidden_rows, hidden_columns = (
        (pixels - middle[:, None]).abs() < half for pixels, middle in zip((rows, columns), middles_2B, strict=True)
    )
    return images.masked_fill((hidden_rows[:, :, None] & hidden_columns[:, None])[:, None], 0.5)
