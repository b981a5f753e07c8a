"""Decode the bytes of an image file to RGB pixels, or say in words why that is not possible.

The content of a file decides its format, not its extension. Only a few well-maintained parsers ever read it. Worker
processes import this module, so it must not import torch.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ExifTags import Base

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".heic", ".heif"}
)
"""Extensions, in lower case, of the files in a folder that openworld reads as images."""

MAX_PIXELS = 1024**3 // 4 // 3
"""Pillow's limit against decompression bombs. This module checks it too, because other libraries may lift Pillow's."""

_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF")  # MPO files open as the JPEG that they begin with
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis", b"mif1", b"msf1")
_BILINEAR = Image.Resampling.BILINEAR
_UPRIGHT = {  # the transposition that undoes each EXIF orientation
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
    """Reason why a file cannot be decoded, as the predicate of a sentence that begins with its path: 'is truncated'."""


def decode(content: bytes, size: int | None) -> np.ndarray:
    """Return (H, W, 3) uint8 RGB pixels of the first frame, possibly read-only. Raise BadImage if that fails.

    The image is upright by its EXIF tag, and on white where it is transparent. With `size`, it is resized to a square
    without keeping the aspect ratio.
    """
    with _failures_as_bad_image():
        image = _open(content)
        box = None
        if size is not None and image.size != (size, size):
            # A JPEG can be decoded at 1/2, 1/4 or 1/8; a side of at least twice `size` still resizes well.
            drafted = image.draft(None, (2 * size, 2 * size))
            box = drafted and drafted[1]
        image.load()  # a PNG may store its orientation after its pixels
        pixels = _rgb(image)
        if size is not None and pixels.size != (size, size):
            pixels = pixels.resize((size, size), _BILINEAR, box=box)
        turn = _UPRIGHT.get(_orientation(image))
        return np.asarray(pixels if turn is None else pixels.transpose(turn))


def is_clutter(name: str) -> bool:
    """Return whether a file or folder is one that file managers leave behind."""
    return name.startswith(".") or name == "__MACOSX"


def image_size(content: bytes) -> tuple[int, int]:
    """Return (width, height) of the upright image. This reads only the header."""
    with _failures_as_bad_image():
        image = _open(content)
        width, height = image.size
        # Pillow reports the size of a TIFF upright, and loads it upright.
        is_sideways = image.format != "TIFF" and _orientation(image) in _SIDEWAYS
        return (height, width) if is_sideways else (width, height)


def resize_images(pixels: np.ndarray, size: int) -> np.ndarray:
    """Resize (N, H, W, C) uint8 images with C = 1 or 3 to squares of `size` pixels, as `decode` does."""
    count, height, width, channels = pixels.shape
    if (height, width) == (size, size):
        return pixels
    resized = np.empty((count, size, size, channels), np.uint8)
    for source, target in zip(pixels, resized, strict=True):
        image = Image.fromarray(source[..., 0] if channels == 1 else source)
        target[:] = np.asarray(image.resize((size, size), _BILINEAR)).reshape(target.shape)
    return resized


def on_white(rgba: np.ndarray) -> np.ndarray:
    """Blend (..., 4) uint8 RGBA with white to (..., 3). Transparent pixels become white, not their hidden colour."""
    alpha = rgba[..., 3:].astype(np.uint16)
    return ((rgba[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


@contextmanager
def _failures_as_bad_image() -> Iterator[None]:
    """Turn the errors of Pillow into BadImage. MemoryError is not the fault of the image and passes through."""
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _bomb(int(re.search(r"\d+", str(error))[0])) from None
    except Exception as error:  # Pillow's parsers raise many types of errors on a damaged file
        text = " ".join(str(error).split()) or type(error).__name__
        raise BadImage("is truncated" if "truncated" in text.lower() else f"is damaged ({text})") from error


def _open(content: bytes) -> Image.Image:
    """Parse the header. The pixels are not loaded yet."""
    if not content:
        raise BadImage("is empty")
    try:
        with warnings.catch_warnings():  # BadImage reports a problem, so Pillow's warnings would repeat it
            warnings.simplefilter("ignore")
            if content[4:8] == b"ftyp" and content[8:12] in _HEIF_BRANDS:
                _register_heif()
                image = Image.open(io.BytesIO(content), formats=("HEIF",))
            else:
                image = Image.open(io.BytesIO(content), formats=_FORMATS)
    except UnidentifiedImageError:
        if any(Image.OPEN[name][1](content[:16]) for name in _FORMATS):
            raise BadImage("is damaged: it begins like an image, but its header is not valid") from None
        raise BadImage(f"is not an image in a format that openworld reads ({', '.join(_FORMATS)})") from None
    if image.width * image.height > MAX_PIXELS:
        raise _bomb(image.width * image.height)
    if not image.width * image.height:
        raise BadImage("is empty: it has no pixels")
    return image


def _register_heif() -> None:
    """Let Pillow read the photos of phones (HEIF). The library is in the extra `photos`."""
    try:
        import pi_heif
    except ImportError:
        raise BadImage("is a HEIF photo, which needs the package pi_heif; run: pip install pi_heif") from None
    pi_heif.register_heif_opener()


def _bomb(pixels: int) -> BadImage:
    return BadImage(f"has {pixels:,} pixels, more than the limit of {MAX_PIXELS:,}")


def _rgb(image: Image.Image) -> Image.Image:
    """Convert an image to RGB.

    16-bit gray values have a fixed scale. Stretching each image to its own range would make them all look alike.
    """
    if image.mode == "F":
        raise BadImage("has floating-point pixels of unknown range; convert it to 8 or 16 bits")
    if image.mode.startswith("I"):
        gray = np.asarray(image).astype(np.int32)
        if gray.min() < 0 or gray.max() > 65535:
            raise BadImage("has pixel values outside 0..65535, so their range is unknown; convert it to 8 or 16 bits")
        image = Image.fromarray(((gray + 128) // 257).astype(np.uint8))
    elif image.has_transparency_data:
        return Image.fromarray(on_white(np.asarray(image.convert("RGBA"))))
    return image if image.mode == "RGB" else image.convert("RGB")


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation, or None. A damaged EXIF block also gives None, because the pixels may be fine."""
    try:
        # Not image.getexif(): a PNG would load its pixels to find a late block, and `decode` has loaded them already.
        return Image.Image.getexif(image).get(Base.Orientation)
    except MemoryError:
        raise
    except Exception:  # Pillow's parser raises struct.error, SyntaxError, KeyError and others
        return None
