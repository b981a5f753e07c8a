"""Decoding files of every kind, and the reasons given for files that cannot be decoded."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from openworld.data.decode import MAX_PIXELS, BadImage, decode, image_size, on_white, resize_images

# Random pixels in a small image: no symmetry could hide a wrong rotation.
PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
RED, WHITE = (255, 0, 0), (255, 255, 255)


def encoded(image: Image.Image | np.ndarray, kind: str, **options) -> bytes:
    stream = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    image.save(stream, kind, **options)
    return stream.getvalue()


def gradient(width: int, height: int) -> Image.Image:
    """Return a smooth image, which lossy compression and another way of resizing change little."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    return Image.fromarray((np.stack([x, y, 1 - x * y], axis=-1) * 255).astype(np.uint8))


def outcome(content: bytes, size: int | None = None) -> np.ndarray | str:
    """Return the pixels, or the reason why there are none."""
    try:
        return decode(content, size)
    except BadImage as error:
        return str(error)


def reason(content: bytes, size: int | None = None) -> str:
    found = outcome(content, size)
    assert isinstance(found, str)
    return found


def distance(left: np.ndarray, right: np.ndarray | Image.Image) -> int:
    return int(np.abs(left.astype(int) - np.asarray(right).astype(int)).max())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("PNG", {}),
        ("PNG", {"interlace": 1}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("TIFF", {"compression": "tiff_deflate"}),
    ],
)
def test_lossless_formats_give_their_pixels_back(kind, options):
    pixels = decode(encoded(PIXELS, kind, **options), None)
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, PIXELS)


@pytest.mark.parametrize(("kind", "options"), [("JPEG", {}), ("JPEG", {"progressive": True}), ("WEBP", {})])
def test_lossy_formats_come_close(kind, options):
    image = gradient(70, 50)
    assert distance(decode(encoded(image, kind, quality=95, **options), None), image) <= 8


def test_jpeg_is_what_pillow_makes_of_it():
    content = encoded(gradient(64, 64), "JPEG")
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert np.array_equal(decode(content, None), expected)
    assert np.array_equal(decode(content, 64), expected)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    image = gradient(48, 32)
    options = {"lossless": True} if kind == "WEBP" else {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    content = encoded(image, kind, exif=exif, **options)
    stored = np.asarray(image)
    upright = {
        1: stored,
        2: stored[:, ::-1],
        3: stored[::-1, ::-1],
        4: stored[::-1],
        5: stored.transpose(1, 0, 2),
        6: np.rot90(stored, -1),
        7: stored[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(stored),
    }[orientation]
    assert decode(content, None).shape == upright.shape
    assert distance(decode(content, None), upright) <= (3 if kind == "JPEG" else 0)
    assert distance(decode(content, 16), Image.fromarray(upright.copy()).resize((16, 16), Image.BILINEAR)) <= 4
    assert image_size(content) == upright.shape[1::-1]


def test_exif_after_the_pixels_of_a_png_counts_too():
    exif = Image.Exif()
    exif[0x0112] = 3
    content = encoded(PIXELS, "PNG", exif=exif)
    start = content.index(b"eXIf") - 4
    end = start + 12 + struct.unpack(">I", content[start : start + 4])[0]
    late = content[:start] + content[end:-12] + content[start:end] + content[-12:]
    assert np.array_equal(decode(late, None), PIXELS[::-1, ::-1])


def test_damaged_exif_does_not_spoil_a_sound_picture():
    content = encoded(gradient(16, 16), "JPEG", exif=b"Exif\0\0" + b"nonsense" * 4)
    assert np.array_equal(decode(content, None), decode(encoded(gradient(16, 16), "JPEG"), None))


@pytest.mark.parametrize("transparency", [1, bytes([255, 0, 128])])
def test_palette_with_transparency_lies_on_white(transparency):
    image = Image.new("P", (3, 1))
    image.putpalette([*RED, 0, 255, 0, 0, 0, 0])
    image.putdata([0, 1, 2])
    last = (0, 0, 0) if transparency == 1 else (127, 127, 127)
    assert decode(encoded(image, "PNG", transparency=transparency), None).tolist() == [
        [list(RED), list(WHITE), list(last)]
    ]


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF"])
def test_palette_without_transparency(kind):
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, 1, 2, 3])
    image.putdata([1, 0])
    assert decode(encoded(image, kind), None).tolist() == [[[1, 2, 3], list(RED)]]


@pytest.mark.parametrize(("mode", "transparency"), [("RGB", RED), ("L", 77), ("1", 1)])
def test_a_transparent_colour_becomes_white(mode, transparency):
    hidden = {"RGB": RED, "L": 77, "1": 255}[mode]
    image = Image.new(mode, (2, 1), hidden)
    image.putpixel((1, 0), 0)
    pixels = decode(encoded(image, "PNG", transparency=transparency), None)
    assert pixels.tolist() == [[list(WHITE), [0, 0, 0]]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_alpha_is_composited_on_white(kind):
    colours = [[10, 20, 30, 255], [10, 20, 30, 0], [0, 100, 200, 128], [255, 255, 255, 7]]
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    pixels = decode(encoded(np.array([colours], np.uint8), kind, **options), None)
    assert pixels.tolist() == [[[10, 20, 30], [255, 255, 255], [127, 177, 227], [255, 255, 255]]]


def test_gray_with_alpha_is_composited_on_white():
    pixels = decode(encoded(np.array([[[40, 255], [40, 0], [0, 51]]], np.uint8), "PNG"), None)
    assert pixels.tolist() == [[[40] * 3, [255] * 3, [204] * 3]]


def test_on_white_agrees_with_pillow():
    rgba = np.random.default_rng(1).integers(0, 256, (30, 30, 4), dtype=np.uint8)
    paper = Image.new("RGB", (30, 30), "white")
    paper.paste(Image.fromarray(rgba), mask=Image.fromarray(rgba[..., 3]))
    assert distance(on_white(rgba), paper) <= 1


@pytest.mark.parametrize(("kind", "mode"), [("PNG", "I;16"), ("TIFF", "I;16"), ("TIFF", "I;16B"), ("TIFF", "I")])
def test_gray_of_16_bits_has_a_fixed_scale(kind, mode):
    values = [0, 128, 129, 257, 32768, 65535]
    dtype = {"I;16": "<u2", "I;16B": ">u2", "I": "<i4"}[mode]
    content = encoded(Image.frombytes(mode, (6, 1), np.array(values, dtype).tobytes()), kind)
    assert Image.open(io.BytesIO(content)).mode == mode
    assert decode(content, None)[0].tolist() == [[gray] * 3 for gray in (0, 0, 1, 1, 128, 255)]


def test_dark_16_bit_images_stay_dark():
    assert decode(encoded(np.full((4, 4), 300, np.uint16), "PNG"), 2).max() == 1


@pytest.mark.parametrize("value", [-1, 65536])
def test_gray_of_32_bits_beyond_16_is_refused(value):
    found = reason(encoded(np.full((2, 2), value, np.int32), "TIFF"))
    assert "outside 0..65535" in found
    assert "convert it to 8 or 16 bits" in found


def test_floating_point_is_refused():
    found = reason(encoded(np.zeros((2, 2), np.float32), "TIFF"))
    assert "floating-point pixels" in found
    assert "convert it to 8 or 16 bits" in found


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "GIF"])
def test_one_bit(kind):
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 255)
    assert decode(encoded(image, kind), None).tolist() == [[[0] * 3, [255] * 3]]


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "TIFF"])
def test_gray(kind):
    content = encoded(np.full((8, 8), 90, np.uint8), kind)
    assert np.array_equal(decode(content, None), np.full((8, 8, 3), 90))
    assert np.array_equal(decode(content, 4), np.full((4, 4, 3), 90))


@pytest.mark.parametrize("kind", ["JPEG", "TIFF"])
def test_cmyk(kind):
    image = Image.new("CMYK", (16, 16), (0, 255, 255, 0))
    assert distance(decode(encoded(image, kind), None), np.full((16, 16, 3), RED)) <= 2


@pytest.mark.parametrize(("mode", "colour"), [("YCbCr", (76, 85, 255)), ("LAB", (138, 209, 198))])
def test_other_colour_spaces_of_tiff(mode, colour):
    pixels = decode(encoded(Image.new(mode, (4, 4), colour), "TIFF"), None)
    assert distance(pixels, np.full((4, 4, 3), RED)) <= 6


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "TIFF", "MPO", "PNG"])
def test_the_first_frame_counts(kind):
    frames = [Image.new("RGB", (16, 16), colour) for colour in (RED, (0, 0, 255))]
    content = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    assert Image.open(io.BytesIO(content)).n_frames == 2
    assert distance(decode(content, None), np.full((16, 16, 3), RED)) <= 2
    assert distance(decode(content, 8), np.full((8, 8, 3), RED)) <= 2


@pytest.mark.parametrize(("width", "height"), [(7, 5), (40, 90), (31, 32), (33, 200), (64, 1)])
def test_squashed_to_a_square_as_pillow_does(width, height):
    image = Image.fromarray(np.random.default_rng(2).integers(0, 256, (height, width, 3), dtype=np.uint8))
    assert np.array_equal(decode(encoded(image, "PNG"), 32), np.asarray(image.resize((32, 32), Image.BILINEAR)))


@pytest.mark.parametrize(("width", "height"), [(1000, 700), (517, 1033), (130, 129), (256, 60)])
def test_large_jpegs_are_reduced_while_decoding_and_come_out_the_same(width, height):
    image = gradient(width, height)
    assert distance(decode(encoded(image, "JPEG", quality=95), 32), image.resize((32, 32), Image.BILINEAR)) <= 4


def test_large_jpegs_are_never_decoded_in_full(monkeypatch):
    content, loaded, load = encoded(gradient(2000, 1600), "JPEG"), [], ImageFile.ImageFile.load
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda image: loaded.append(image.size) or load(image))
    decode(content, 64)
    assert set(loaded) == {(250, 200)}


def test_the_content_decides_and_not_the_name_but_other_formats_are_never_parsed():
    for kind in ("PPM", "EPS"):
        found = reason(encoded(PIXELS, kind))
        assert found.startswith("is not an image")
        assert "(JPEG, PNG, WEBP, BMP, TIFF, GIF)" in found


def test_files_that_are_no_images():
    assert reason(b"") == "is empty"
    assert reason(b"this is a text, whatever its name says\n").startswith("is not an image")
    assert reason(b"\xff\xd8\xff").startswith("is damaged")


@pytest.mark.parametrize(
    ("kind", "options"), [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("GIF", {}), ("BMP", {})]
)
@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_truncated(kind, options, share):
    image = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    content = encoded(image, kind, **options)
    for size in (None, 16):
        assert reason(content[: int(len(content) * share)], size) == "is truncated"


@pytest.mark.filterwarnings("ignore:.*EXIF|.*Truncated|.*Tag")
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_a_cut_anywhere_gives_a_reason_or_all_of_the_pixels(kind):
    content = encoded(PIXELS, kind)
    whole = decode(content, None)
    for length in range(len(content)):
        found = outcome(content[:length])
        assert isinstance(found, str) or np.array_equal(found, whole)


def png_header(width: int, height: int) -> bytes:
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


@pytest.mark.parametrize("action", ["error", "ignore"])
@pytest.mark.parametrize(("width", "height"), [(30_000, 30_000), (10_000, 10_000)])
def test_decompression_bombs_are_never_loaded(width, height, action):
    content = png_header(width, height) + b"\0\0\0\0IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    with warnings.catch_warnings():
        warnings.simplefilter(action)
        found = reason(content)
        assert f"{width * height:,} pixels" in found
        assert f"{MAX_PIXELS:,}" in found
        with pytest.raises(BadImage, match="more than the limit"):
            image_size(content)


def test_the_limit_holds_when_another_library_has_lifted_that_of_pillow(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    assert "more than the limit" in reason(png_header(30_000, 30_000) + b"\0\0\0\0IDAT" + bytes(4))


@pytest.mark.parametrize("content", [png_header(0, 5), b"GIF89a" + bytes(7) + b",\0\0\0\0" + bytes(20)])
def test_images_without_pixels(content):
    assert reason(content).startswith(("is empty", "is damaged", "is truncated"))


@pytest.mark.parametrize("failure", [MemoryError, KeyboardInterrupt])
def test_what_is_not_the_fault_of_the_image_passes_through(monkeypatch, failure):
    def fail(image):
        raise failure

    monkeypatch.setattr(ImageFile.ImageFile, "load", fail)
    with pytest.raises(failure):
        decode(encoded(PIXELS, "JPEG"), None)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF"])
def test_the_size_needs_only_the_header(kind, monkeypatch):
    content = encoded(np.zeros((50, 70, 3), np.uint8), kind)
    monkeypatch.delattr(ImageFile.ImageFile, "load")
    assert image_size(content) == (70, 50)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_in_memory_are_resized_like_files(channels):
    pixels = np.random.default_rng(3).integers(0, 256, (4, 20, 30, channels), dtype=np.uint8)
    resized = resize_images(pixels, 8)
    assert resized.shape == (4, 8, 8, channels)
    for one, expected in zip(pixels, resized, strict=True):
        file = encoded(one.squeeze() if channels == 1 else one, "PNG")
        assert np.array_equal(np.broadcast_to(expected, (8, 8, 3)), decode(file, 8))
    assert resize_images(resized, 8) is resized


SEEDS = [encoded(PIXELS, kind) for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "MPO")]


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=300, deadline=None)
@given(st.sampled_from([b"", *SEEDS]), st.lists(st.tuples(st.integers(0, 4000), st.binary(max_size=8)), max_size=5))
def test_whatever_the_bytes_there_is_an_array_or_a_reason(seed, patches):
    content = bytearray(seed)
    for position, patch in patches:
        content[position : position + len(patch)] = patch
    for size in (None, 4):
        found = outcome(bytes(content), size)
        if isinstance(found, str):
            assert found.startswith(("is ", "has "))
            assert "\n" not in found
        else:
            assert found.dtype == np.uint8
            assert found.shape == (*(found.shape[:2] if size is None else (size, size)), 3)
