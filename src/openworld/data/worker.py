"""What a worker does for training: read images into shared memory. It knows Pillow and numpy, not torch."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from openworld.core.errors import UserError
from openworld.data.decode import BadImage, decode
from openworld.data.pixel_cache import read_rows


@dataclass(frozen=True)
class Item:
    """Where an image is to be found: in a row of the store, or in its file."""

    path: str
    row: int | None
    state: tuple[int, int] | None
    """Its size and time of change when training began; none where all is read at once."""


def state_of(status: os.stat_result) -> tuple[int, int]:
    """What tells of a change at hardly any cost: a hash would slow a worker down by two per cent."""
    return status.st_size, status.st_mtime_ns


rings: dict[int, np.ndarray] = {}
"""In the process that reads: the shared memory of the feeder that it works for."""


def attach(feeder: int, memory, shape: tuple[int, ...]) -> None:
    rings[feeder] = np.frombuffer(memory, np.uint8).reshape(shape)


def read_piece(feeder: int, slot: int, items: Sequence[Item], rows_path: Path) -> None:
    """Into a slot of the ring: from the store where the image lies there, else from its file."""
    ring = rings[feeder][slot]
    row_bytes = ring[0].nbytes
    try:
        if all(item.row is not None for item in items):
            read_rows(rows_path, [item.row for item in items], row_bytes, memoryview(ring.reshape(-1)))
            return
    except OSError:  # a cache may be deleted at any time
        pass
    for number, item in enumerate(items):
        ring[number] = read_file(item, ring.shape[2]).transpose(2, 0, 1)


def read_file(item: Item, size: int) -> np.ndarray:
    try:
        with open(item.path, "rb") as file:
            if item.state and state_of(os.fstat(file.fileno())) != item.state:
                raise UserError(f"{item.path} has changed since training began")
            content = file.read()
    except OSError as error:
        raise UserError(f"{item.path}: cannot be read any more ({error.strerror})") from None
    try:
        return decode(content, size)
    except BadImage as error:
        raise UserError(f"{item.path} {error}") from None


def decode_files(paths: Sequence[str], size: int, channels: int) -> list[np.ndarray | str]:
    """The pixels of each file, (channels, size, size); or why there are none."""
    return [_decoded_or_reason(path, size, channels) for path in paths]


def _decoded_or_reason(path: str, size: int, channels: int) -> np.ndarray | str:
    try:
        pixels = decode(Path(path).read_bytes(), size)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    except ValueError:  # as a path with a zero byte
        return "cannot be read (no such name is possible)"
    except BadImage as error:
        return str(error)
    return gray(pixels)[None] if channels == 1 else pixels.transpose(2, 0, 1)


def gray(pixels: np.ndarray) -> np.ndarray:
    """(H, W) of (H, W, 3): as bright as the colours are to the eye."""
    return np.asarray(Image.fromarray(pixels).convert("L"))
