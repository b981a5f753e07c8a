"""Decoded images on disk, found by the content of the file that they came from.

One store for each image size: rows.bin holds the pixels, keys.bin the sha256 of the file behind each row. A key is
written after its row is safely there, so what a crash leaves is a row without a key, which is overwritten.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

KEY_BYTES = 32
NO_KEY = bytes(KEY_BYTES)
FREE_BYTES_LEFT = 2**30
"""A cache must not fill the disk: this much stays free."""


class PixelCache:
    """Rows of `size` x `size` RGB pixels, channel by channel."""

    def __init__(self, folder: Path, size: int):
        self.folder = folder / "pixels-1" / str(size)  # the number counts ways to decode
        self.row_bytes = size * size * 3
        self.rows_path, self.keys_path = self.folder / "rows.bin", self.folder / "keys.bin"

    def has_room_for(self, rows: int) -> bool:
        """Whether so many more rows can be written: there is space, and the folder can be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return False
        return os.access(self.folder, os.W_OK) and free - rows * self.row_bytes > FREE_BYTES_LEFT

    def find(self) -> dict[bytes, int]:
        """The row of each key."""
        try:
            keys = self.keys_path.read_bytes()
        except OSError:
            return {}
        rows = {keys[row * KEY_BYTES : (row + 1) * KEY_BYTES]: row for row in range(len(keys) // KEY_BYTES)}
        rows.pop(NO_KEY, None)
        return rows

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Alone with the store: the first row that may be written."""
        with self.keys_path.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = os.fstat(lock.fileno()).st_size // KEY_BYTES
            os.truncate(self.keys_path, rows * KEY_BYTES)  # a key that was cut short by a crash
            yield rows

    def commit(self, keys: list[bytes]) -> None:
        """The rows after the last committed one are written: these are their keys (NO_KEY: none)."""
        with self.rows_path.open("ab") as rows:
            os.fsync(rows.fileno())
        with self.keys_path.open("ab") as file:
            file.write(b"".join(keys))
            file.flush()
            os.fsync(file.fileno())


def read_rows(rows_path: Path, rows: list[int], row_bytes: int, out: memoryview) -> None:
    """Read rows into memory, one after the other; neighbours on the disk are read in one go."""
    file = os.open(rows_path, os.O_RDONLY)
    try:
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and rows[end] == rows[end - 1] + 1:
                end += 1
            target = out[start * row_bytes : end * row_bytes]
            if os.preadv(file, [target], rows[start] * row_bytes) != len(target):
                raise OSError(f"{rows_path} is shorter than its keys say: delete the folder {rows_path.parent}")
            start = end
    finally:
        os.close(file)


def write_row(file: int, row: int, pixels: bytes) -> None:
    if os.pwrite(file, pixels, row * len(pixels)) != len(pixels):
        raise OSError("the disk is full")
