"""Draw contact sheets: one picture that shows many images of a data set, or their augmented views."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont, ImageOps
from torch import Tensor

SMALLEST, LARGEST, GAP, TEXT = 64, 160, 4, 14
"""In pixels: the smallest and largest side of a cell, the space between cells, and the font size of the headings."""
PAPER, INK = "white", "black"


class Row(NamedTuple):
    """A row of images under a heading."""

    heading: str
    images: Sequence[Tensor]
    """Images of shape (C, H, W), uint8 or floats in [0, 1]; C is 1 or 3."""


def rows_by_class(class_names: Sequence[str], images: Tensor, labels: Tensor, most: int) -> list[Row]:
    """Return a row for each class with its first images, at most `most`. Samples of unknown class (-1) are left out."""
    return [Row(name, list(images[labels == number][:most])) for number, name in enumerate(class_names)]


def rows_of_views(headings: Sequence[str], originals: Tensor, views: Sequence[Tensor]) -> list[Row]:
    """Return a row for each sample: the original, then its view from each batch of views."""
    return [
        Row(heading, [original, *sample_views])
        for heading, original, *sample_views in zip(headings, originals, *views, strict=True)
    ]


def contact_sheet(rows: Sequence[Row]) -> Image.Image:
    """Draw a grid of images with a heading above each row. Small images are enlarged without smoothing."""
    pictures = [[_fitted(_to_picture(image)) for image in row.images] for row in rows]
    font = ImageFont.load_default(size=TEXT)
    side = max((max(picture.size) for row in pictures for picture in row), default=SMALLEST)
    line = TEXT + GAP
    width = max(
        max((len(row) for row in pictures), default=0) * (side + GAP),
        max((round(font.getlength(_one_line(row.heading))) + GAP for row in rows), default=0),
    )
    sheet = Image.new("RGB", (GAP + width, GAP + len(rows) * (line + side + GAP)), PAPER)
    text = ImageDraw.Draw(sheet)
    for number, (row, row_pictures) in enumerate(zip(rows, pictures, strict=True)):
        top = GAP + number * (line + side + GAP)
        text.text((GAP, top), _one_line(row.heading), fill=INK, font=font)
        for column, picture in enumerate(row_pictures):
            sheet.paste(picture, (GAP + column * (side + GAP), top + line))
    return sheet


def _to_picture(image: Tensor) -> Image.Image:
    levels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = levels.permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(pixels.repeat(3 // pixels.shape[2], axis=2)))


def _fitted(picture: Image.Image) -> Image.Image:
    """Reduce a large picture. Enlarge a small one by the smallest whole factor that brings it to `SMALLEST` pixels."""
    if max(picture.size) > LARGEST:
        return ImageOps.contain(picture, (LARGEST, LARGEST))
    factor = max(1, -(-SMALLEST // max(picture.size)))
    return picture.resize((picture.width * factor, picture.height * factor), Image.NEAREST)


def _one_line(heading: str) -> str:
    return " ".join(heading.split())
