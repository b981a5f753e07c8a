"""Pictures of many small images at once: what a data set holds, and what augmentation makes of it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

SMALLEST, GAP, TEXT = 64, 4, 14
"""Pixels: the least side of a cell, the space between cells, and the height of the headings' font."""
PAPER, INK = "white", "black"


class Row(NamedTuple):
    heading: str
    images: Sequence[Tensor]
    """(C, H, W) each, uint8 or floats in [0, 1]; C is 1 or 3."""


def rows_by_class(class_names: Sequence[str], images: Tensor, labels: Tensor, most: int) -> list[Row]:
    """For each class its first images, at most so many; samples whose class nobody knows (-1) are left out."""
    return [Row(name, list(images[labels == number][:most])) for number, name in enumerate(class_names)]


def rows_of_views(headings: Sequence[str], originals: Tensor, views: Sequence[Tensor]) -> list[Row]:
    """For each sample the original, then its view in every batch of views."""
    return [
        Row(heading, [original, *of_sample])
        for heading, original, *of_sample in zip(headings, originals, *views, strict=True)
    ]


def contact_sheet(rows: Sequence[Row]) -> Image.Image:
    """A grid with a line of text above each row; small images are enlarged, pixel by pixel."""
    pictures = [[enlarged(to_picture(image)) for image in row.images] for row in rows]
    font = ImageFont.load_default(size=TEXT)
    side = max((max(picture.size) for row in pictures for picture in row), default=SMALLEST)
    line = TEXT + GAP
    width = max(
        max((len(row) for row in pictures), default=0) * (side + GAP),
        max((round(font.getlength(one_line(row.heading))) + GAP for row in rows), default=0),
    )
    sheet = Image.new("RGB", (GAP + width, GAP + len(rows) * (line + side + GAP)), PAPER)
    text = ImageDraw.Draw(sheet)
    for number, (row, row_pictures) in enumerate(zip(rows, pictures, strict=True)):
        top = GAP + number * (line + side + GAP)
        text.text((GAP, top), one_line(row.heading), fill=INK, font=font)
        for column, picture in enumerate(row_pictures):
            sheet.paste(picture, (GAP + column * (side + GAP), top + line))
    return sheet


def to_picture(image: Tensor) -> Image.Image:
    levels = image if image.dtype == torch.uint8 else (image.clamp(0, 1) * 255).round().to(torch.uint8)
    pixels = levels.permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(np.ascontiguousarray(pixels.repeat(3 // pixels.shape[2], axis=2)))


def enlarged(picture: Image.Image) -> Image.Image:
    """By the least whole number that makes it large enough to be seen."""
    factor = max(1, -(-SMALLEST // max(picture.size)))
    return picture.resize((picture.width * factor, picture.height * factor), Image.NEAREST)


def one_line(heading: str) -> str:
    return " ".join(heading.split())
