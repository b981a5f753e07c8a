"""The functions that run in worker processes: read and decode images. They use Pillow and numpy, but not torch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from openworld.core.errors import UserError
from openworld.data.decode import BadImage, decode
from openworld.data.row_cache import read_rows


@dataclass(frozen=True)
class Item:
    """Where to find an image: in a row of the pixel cache, or in its file."""

    path: str
    row: int | None
    """Row in the pixel cache. None if the image is not in the cache."""
    key: bytes
    """sha256 of the content of the file."""
    state: tuple[int, int] | None
    """Size and modification time of the file when training began. None if all images are read once, at the start."""


def state_of(status: os.stat_result) -> tuple[int, int]:
    """Return the size and modification time of a file, to detect changes.

    This costs almost nothing. A hash would slow a worker down by 2%.
    """
    return status.st_size, status.st_mtime_ns


rings: dict[int, np.ndarray] = {}
"""The shared memory of each feeder, by the feeder's id, in the process that reads."""


def attach(feeder: int, memory, shape: tuple[int, ...]) -> None:
    """Make the shared memory of a feeder available to this process."""
    rings[feeder] = np.frombuffer(memory, np.uint8).reshape(shape)


def read_piece(feeder: int, slot: int, items: Sequence[Item], rows_path: Path) -> None:
    """Read images into a slot of the ring: from the pixel cache if it holds them all, otherwise from the files."""
    ring = rings[feeder][slot]
    row_bytes = ring[0].nbytes
    try:
        if all(item.row is not None for item in items):
            read_rows(rows_path, [item.row for item in items], row_bytes, memoryview(ring.reshape(-1)))
            return
    except OSError:  # users may delete the cache at any time
        pass
    for number, item in enumerate(items):
        ring[number] = read_file(item, ring.shape[2]).transpose(2, 0, 1)


def read_file(item: Item, size: int) -> np.ndarray:
    """Decode the file of an item. Raise a UserError if the file has changed or is broken."""
    try:
        with open(item.path, "rb") as file:
            if item.state and state_of(os.fstat(file.fileno())) != item.state:
                raise UserError(f"{item.path} has changed since training began; restore the file, or train again")
            content = file.read()
    except OSError as error:
        raise UserError(f"{item.path} cannot be read any more ({error.strerror}); restore the file") from None
    try:
        return decode(content, size)
    except BadImage as error:
        raise UserError(f"{item.path} {error}") from None


def decode_files(paths: Sequence[str], size: int, channels: int) -> list[np.ndarray | str]:
    """Return the pixels of each file, (channels, size, size), or the reason why the file cannot be decoded."""
    return [_decoded_or_reason(path, size, channels) for path in paths]


def _decoded_or_reason(path: str, size: int, channels: int) -> np.ndarray | str:
    """Decode one file for `decode_files`."""
    try:
        pixels = decode(Path(path).read_bytes(), size)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except ValueError:  # for example, the path contains a null byte
        return "cannot be read (not a valid file name)"
    except BadImage as error:
        return str(error)
    return gray(pixels)[None] if channels == 1 else pixels.transpose(2, 0, 1)


def gray(pixels: np.ndarray) -> np.ndarray:
    """Convert (H, W, 3) colours to (H, W) brightness as the eye perceives it."""
    return np.asarray(Image.fromarray(pixels).convert("L"))
