"""Image operations on batches, with a parameter for each sample. They draw no random numbers.

Images are floats in [0, 1]. Each operation changes sample b as Pillow changes one image with parameter b.
The host never waits for the device, because no branch depends on a value.
Shapes: B samples, C channels, H x W pixels, O output pixels along a side. Images are (B, C, H, W), a parameter is (B,).
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def crop(images: Tensor, middles_2B: Tensor, sides_2B: Tensor, size: int) -> Tensor:
    """Cut a window out of each image and resize it to `size` x `size`, as Pillow's crop and bilinear resize do.

    Pixels outside the image are zero, so a crop from a padded image is a window that crosses the edge. A window that is
    larger than the output is smoothed as it shrinks. No pixel outside the window is read.

    Args:
        images: square, (B, C, H, H).
        middles_2B: the middle of each window in pixels, row first, then column.
        sides_2B: the height and the width of each window. A negative side mirrors the window.
        size: the side of the output.
    """
    middles, sides = middles_2B[:, :, None], sides_2B[:, :, None]
    pixels = torch.arange(0.5, images.shape[2], device=images.device)  # the centre of a pixel is half a pixel inside
    outputs = torch.arange(0.5 - size / 2, size / 2, device=images.device)  # relative to the middle
    widths = (sides.abs() / size).clamp_(min=1)
    is_outside = (pixels - middles).abs_() > sides.abs() / 2
    sources = (pixels / widths).masked_fill_(is_outside, torch.inf)  # infinitely far: no weight
    centres = torch.addcmul(middles, outputs, sides, value=1 / size).div_(widths)
    # (2, B, O, H) with the wrong sign, which saves a pass over memory; the division corrects the sign
    negative = (centres[:, :, :, None] - sources[:, :, None]).abs_().sub_(1).clamp_(max=0)
    # At the edge of a window some weight is lost, but never half of it. Outside the image all weights are zero.
    weights = negative.div_(negative.sum(dim=3, keepdim=True).clamp_(max=-0.5))
    return _separable(images, *weights).clamp_(0, 1)


def gaussian_blur(images: Tensor, sigma_B: Tensor, reach: int) -> Tensor:
    """Blur each image by a Gaussian of standard deviation `sigma_B` pixels, cut off at `reach` pixels.

    Outside the image, the pixels at the edge are repeated. Pillow's GaussianBlur approximates this by three box blurs,
    with the same treatment of the edges.
    """
    down, across = (_gaussian(size, sigma_B, reach) for size in images.shape[2:])
    return _separable(F.pad(images, [reach] * 4, mode="replicate"), down, across).clamp_(0, 1)


def _gaussian(size: int, sigma_B: Tensor, reach: int) -> Tensor:
    """Return (B, size, size + 2 * reach) weights of the pixels of a padded row."""
    pixels = torch.arange(-reach, size + reach, device=sigma_B.device)
    distances = pixels - pixels[reach:-reach, None]
    heights = (-0.5 * (distances / sigma_B[:, None, None]) ** 2).exp().masked_fill(distances.abs() > reach, 0)
    return heights / heights.sum(dim=2, keepdim=True)


def _separable(images: Tensor, down_BOH: Tensor, across_BOW: Tensor) -> Tensor:
    """Return weighted sums of the rows and columns of each image, by two small matrix products."""
    wide = images.flatten(1, 2) @ across_BOW.transpose(1, 2)
    return down_BOH[:, None] @ wide.unflatten(1, images.shape[1:3])


def luma(images: Tensor) -> Tensor:
    """Return the (B, 1, H, W) luma: `0.299 red + 0.587 green + 0.114 blue` (ITU-R 601, as in Pillow).

    An image of one channel is its own luma.
    """
    if images.shape[1] == 1:
        return images
    red, green, blue = images.split(1, dim=1)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def grayscale(images: Tensor) -> Tensor:
    """Replace every channel by the luma."""
    return luma(images).expand_as(images)


def blend(images: Tensor, weights_B3: Tensor) -> Tensor:
    """Blend each image with its luma and its mean luma, clipped to [0, 1]::

        blend = w[0] image + w[1] luma + w[2] mean(luma)

    Changes of brightness, contrast and saturation all have this form, so one batch may mix them.
    """
    of_image, of_luma, of_mean = weights_B3.reshape(-1, 3, 1, 1, 1).unbind(dim=1)
    gray = luma(images)
    base = torch.addcmul(of_mean * gray.mean(dim=(2, 3), keepdim=True), gray, of_luma)
    return torch.addcmul(base, images, of_image).clamp_(0, 1)


def brightness(factor_B: Tensor) -> Tensor:
    """Return the (B, 3) weights with which `blend` scales the brightness: 0 gives black, 1 changes nothing."""
    zeros = torch.zeros_like(factor_B)
    return torch.stack([factor_B, zeros, zeros], dim=1)


def contrast(factor_B: Tensor) -> Tensor:
    """Return the (B, 3) weights with which `blend` scales the contrast: 0 gives the mean luma, 1 changes nothing."""
    return torch.stack([factor_B, torch.zeros_like(factor_B), 1 - factor_B], dim=1)


def saturation(factor_B: Tensor) -> Tensor:
    """Return the (B, 3) weights with which `blend` scales the saturation: 0 gives the luma, 1 changes nothing."""
    return torch.stack([factor_B, 1 - factor_B, torch.zeros_like(factor_B)], dim=1)


def shift_hue(images: Tensor, shift_B: Tensor) -> Tensor:
    """Rotate the hue by a fraction of the full circle. Value and saturation stay the same. Gray has no hue."""
    if images.shape[1] == 1:
        return images
    value, lowest = images.amax(dim=1, keepdim=True), images.amin(dim=1, keepdim=True)
    chroma = value - lowest
    red, green, blue = images.split(1, dim=1)
    # From red to its opposite, green or blue rises first, then red falls, then the third channel rises. This sum grows
    # linearly through all three phases.
    from_red = (green + blue).sub_(red).sub_(lowest).div_(chroma.clamp(min=1e-8)).add_(1)
    hue = from_red.copysign_(green - blue).div_(6).add_(shift_B.view(-1, 1, 1, 1))
    # A channel lacks the whole chroma if the hue is within a sixth of the channel's opposite hue. It lacks nothing if
    # the hue is two sixths or more away from that.
    opposites = torch.arange(3, 9, 2, device=images.device).view(3, 1, 1) / 6
    distance = hue - opposites
    missing = distance.sub_(distance.round()).abs_().mul_(-6).add_(2).clamp_(0, 1)
    return torch.addcmul(value, chroma, missing, value=-1)


def solarize(images: Tensor, threshold_B: Tensor) -> Tensor:
    """Invert the pixels at or above the threshold."""
    return torch.where(images >= threshold_B.view(-1, 1, 1, 1), 1 - images, images)


def equalize(images: Tensor) -> Tensor:
    """Equalise the histogram of each channel, on 256 levels as in Pillow."""
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
    """Reduce each channel to `levels_B` levels, a power of two. Values are rounded down."""
    step = (256 / levels_B).view(-1, 1, 1, 1)
    return (images * 255).round_().div_(step).floor_().mul_(step).div_(255)


def warp(images: Tensor, affine_B23: Tensor) -> Tensor:
    """Transform each image by an affine map from output to input coordinates, both in [-1, 1].

    The output is interpolated bilinearly. Pixels outside the input are zero.
    """
    grid = F.affine_grid(affine_B23, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, align_corners=False, padding_mode="zeros")


def cut_out(images: Tensor, middles_2B: Tensor, side_B: Tensor) -> Tensor:
    """Cover a square of each image with gray (0.5). The square may extend beyond the edge.

    Args:
        images: (B, C, H, W).
        middles_2B: the middle of each square in pixels, row first, then column.
        side_B: the side of each square in pixels.
    """
    rows, columns = (torch.arange(0.5, size, device=images.device) for size in images.shape[2:])
    half = side_B[:, None] / 2
    hidden_rows, hidden_columns = (
        (pixels - middle[:, None]).abs() < half for pixels, middle in zip((rows, columns), middles_2B, strict=True)
    )
    return images.masked_fill((hidden_rows[:, :, None] & hidden_columns[:, None])[:, None], 0.5)
