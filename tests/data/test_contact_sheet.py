"""What a contact sheet shows, and where."""

import numpy as np
import torch
from PIL import Image

from openworld.data.contact_sheet import GAP, TEXT, Row, contact_sheet, rows_by_class, rows_of_views
from openworld.data.dataset import Part
from openworld.data.peek import some_of_each_class

LINE = TEXT + GAP


def plain(*colour: float, size: int = 32) -> torch.Tensor:
    return torch.tensor(colour)[:, None, None].expand(-1, size, size)


def pixel(sheet: Image.Image, column: int, row: int, side: int = 64, offset: int = 0) -> tuple[int, ...]:
    """Return the pixel of a cell, `offset` from its corner in both directions."""
    top = GAP + row * (LINE + side + GAP) + LINE
    return sheet.getpixel((GAP + column * (side + GAP) + offset, top + offset))


def test_cells_lie_in_a_grid_under_their_headings():
    red, half_gray, blue = plain(1.0, 0.0, 0.0), plain(0.5), (plain(0.0, 0.0, 1.0) * 255).to(torch.uint8)
    sheet = contact_sheet([Row("first", [red, half_gray]), Row("second", [blue])])
    assert sheet.size == (GAP + 2 * (64 + GAP), GAP + 2 * (LINE + 64 + GAP))
    for offset in (0, 63):
        assert pixel(sheet, 0, 0, offset=offset) == (255, 0, 0)
        assert pixel(sheet, 1, 0, offset=offset) == (128, 128, 128)
        assert pixel(sheet, 0, 1, offset=offset) == (0, 0, 255)
    assert pixel(sheet, 1, 1) == (255, 255, 255)  # no image: paper
    assert np.array(sheet)[: GAP + LINE].min() < 128  # there is text above the first row


def test_small_images_are_enlarged_pixel_by_pixel_and_large_ones_are_not():
    dot = torch.zeros(1, 8, 8, dtype=torch.uint8)
    dot[0, 1, 1] = 255
    sheet = contact_sheet([Row("", [dot])])
    levels = [pixel(sheet, 0, 0, offset=offset)[0] for offset in (7, 8, 15, 16)]
    assert levels == [0, 255, 255, 0]
    assert contact_sheet([Row("", [plain(0.0, size=28)])]).size[0] == 2 * GAP + 84
    assert contact_sheet([Row("", [plain(0.0, size=224), plain(0.0, size=256)])]).size[0] == 3 * GAP + 2 * 160


def test_any_heading_can_be_shown_and_none_is_cut_off():
    for heading in ("naïve Ærø Ω", "漢字 🦊", "two\nlines", "", "a" * 300):
        sheet = contact_sheet([Row(heading, [plain(0.0)])])
        assert sheet.height == GAP + LINE + 64 + GAP
        assert np.array(sheet)[:, -GAP:].min() == 255
    assert sheet.width > 1000


def test_a_sheet_may_be_empty():
    assert contact_sheet([]).size == (GAP, GAP)
    assert contact_sheet([Row("a class without images", [])]).width > 64


def test_rows_by_class_hold_the_first_images_of_each_class():
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None]
    labels = torch.tensor([1, 0, 1, -1, 1, 0])
    rows = rows_by_class(["cat", "dog", "owl"], images, labels, most=2)
    assert [(row.heading, [int(image) for image in row.images]) for row in rows] == [
        ("cat", [1, 5]),
        ("dog", [0, 2]),
        ("owl", []),
    ]


def test_samples_of_a_class_are_taken_from_all_over_it():
    """Files are often sorted by their content."""
    labels = np.array([0] * 19 + [-1] * 3)
    part = Part(np.zeros((22, 8, 8, 3), dtype=np.uint8), labels)
    assert some_of_each_class(part, num_classes=2, count=10) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 19, 20, 21]
    assert some_of_each_class(part, num_classes=2, count=1) == [0, 19]


def test_rows_of_views_hold_the_original_and_then_its_views():
    originals = torch.tensor([1, 2], dtype=torch.uint8)[:, None, None, None]
    rows = rows_of_views(["cat", "dog"], originals, [originals / 10, originals / 5])
    assert [row.heading for row in rows] == ["cat", "dog"]
    torch.testing.assert_close([float(image) for image in rows[1].images], [2.0, 0.2, 0.4])
