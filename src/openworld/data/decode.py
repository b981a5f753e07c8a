"""From the bytes of an image file to RGB pixels, or the reason in words why there are none.

What a file contains decides, not its suffix, and only a few well-kept parsers ever see it. Worker processes import
this module: it must stay free of torch.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import Base

SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""Of the files that are taken for images when a folder is listed, in lower case."""

MAX_PIXELS = 1024**3 // 4 // 3
"""Pillow's limit against decompression bombs: held here too, for other libraries are known to lift Pillow's."""

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")  # MPO is opened as the JPEG that it begins with
_BILINEAR = Image.Resampling.BILINEAR
_UPRIGHT = {  # what undoes each EXIF orientation
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)


class BadImage(Exception):
    """Why a file has no pixels to give, as the predicate of a sentence that begins with its path: 'is truncated'."""


def decode(content: bytes, size: int | None) -> np.ndarray:
    """(H, W, 3) uint8 RGB, perhaps read-only: upright, the first frame, on white; squashed to a square of `size`."""
    with _failures_as_bad_image():
        image = _open(content)
        box = None
        if size is not None and image.size != (size, size):
            # a JPEG can be decoded at 1/2, 1/4 or 1/8; what is at least twice the square still resizes well
            drafted = image.draft(None, (2 * size, 2 * size))
            box = drafted and drafted[1]
        image.load()  # a PNG may tell its orientation only after its pixels
        pixels = _rgb(image)
        if size is not None and pixels.size != (size, size):
            pixels = pixels.resize((size, size), _BILINEAR, box=box)
        turn = _UPRIGHT.get(_orientation(image))
        return np.asarray(pixels if turn is None else pixels.transpose(turn))


def is_clutter(name: str) -> bool:
    """Whether a file or folder is what file managers leave behind."""
    return name.startswith(".") or name == "__MACOSX"


def image_size(content: bytes) -> tuple[int, int]:
    """(width, height) of the upright image, from the header alone."""
    with _failures_as_bad_image():
        image = _open(content)
        width, height = image.size
        # Pillow reports, and loads, a TIFF upright
        is_sideways = image.format != "TIFF" and _orientation(image) in _SIDEWAYS
        return (height, width) if is_sideways else (width, height)


def resize_images(pixels: np.ndarray, size: int) -> np.ndarray:
    """(N, H, W, C) uint8 images, C 1 or 3, squashed to squares of `size` as `decode` does."""
    count, height, width, channels = pixels.shape
    if (height, width) == (size, size):
        return pixels
    resized = np.empty((count, size, size, channels), np.uint8)
    for source, target in zip(pixels, resized, strict=True):
        image = Image.fromarray(source[..., 0] if channels == 1 else source)
        target[:] = np.asarray(image.resize((size, size), _BILINEAR)).reshape(target.shape)
    return resized


def on_white(rgba: np.ndarray) -> np.ndarray:
    """(..., 3) of (..., 4) uint8: what is transparent shows white paper, not the colour that lies hidden there."""
    alpha = rgba[..., 3:].astype(np.uint16)
    return ((rgba[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


@contextmanager
def _failures_as_bad_image() -> Iterator[None]:
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _bomb(int(re.search(r"\d+", str(error))[0])) from None
    except Exception as error:  # Pillow's parsers raise whatever they stumble over
        text = " ".join(str(error).split()) or type(error).__name__
        raise BadImage("is truncated" if "truncated" in text.lower() else f"is damaged ({text})") from error


def _open(content: bytes) -> Image.Image:
    """The header, parsed; the pixels are still to be loaded."""
    if not content:
        raise BadImage("is empty")
    try:
        with warnings.catch_warnings():  # of what makes us refuse an image we say so ourselves
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(content), formats=_FORMATS)
    except UnidentifiedImageError:
        if any(Image.OPEN[name][1](content[:16]) for name in _FORMATS):
            raise BadImage("is damaged: it begins like an image, but its header makes no sense") from None
        raise BadImage(f"is not an image that can be read ({', '.join(_FORMATS)})") from None
    if image.width * image.height > MAX_PIXELS:
        raise _bomb(image.width * image.height)
    if not image.width * image.height:
        raise BadImage("is empty: it has no pixels")
    return image


def _bomb(pixels: int) -> BadImage:
    return BadImage(f"has {pixels:,} pixels, more than the limit of {MAX_PIXELS:,}")


def _rgb(image: Image.Image) -> Image.Image:
    """The image as RGB; gray of 16 bits on a fixed scale, for stretching each by itself would make them all alike."""
    if image.mode == "F":
        raise BadImage("holds floating-point pixels, whose range is unknown; convert it to 8 or 16 bits")
    if image.mode.startswith("I"):
        gray = np.asarray(image).astype(np.int32)
        if gray.min() < 0 or gray.max() > 65535:
            raise BadImage("holds pixels outside 0..65535, whose range is unknown; convert it to 8 or 16 bits")
        image = Image.fromarray(((gray + 128) // 257).astype(np.uint8))
    elif image.has_transparency_data:
        return Image.fromarray(on_white(np.asarray(image.convert("RGBA"))))
    return image if image.mode == "RGB" else image.convert("RGB")


def _orientation(image: Image.Image) -> object:
    """EXIF's number, None without one; a damaged EXIF block does not spoil a picture that is sound."""
    try:
        # not image.getexif(): a PNG would load its pixels in search of a late block, which `decode` has done anyway
        return Image.Image.getexif(image).get(Base.Orientation)
    except MemoryError:
        raise
    except Exception:  # Pillow lets through whatever its parser met: struct.error, SyntaxError, KeyError and others
        return None
