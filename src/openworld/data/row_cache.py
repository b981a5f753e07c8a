"""A cache of rows on disk. The content of an image is the key of its row: its pixels, or its features.

rows.bin holds the rows, keys.bin the sha256 of the image behind each row. A key is written after its row is safely on
disk. A crash can therefore leave only a row without a key, which is overwritten. A key without its row counts as
absent: somebody deleted or cut rows.bin.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

KEY_BYTES = 32
NO_KEY = bytes(KEY_BYTES)
"""Key of a row without an image."""
FREE_BYTES_LEFT = 2**30
"""Bytes that stay free, because a cache must not fill the disk."""


class RowCache:
    """Rows of `row_bytes` bytes in a folder."""

    def __init__(self, folder: Path, row_bytes: int):
        self.folder, self.row_bytes = folder, row_bytes
        self.rows_path, self.keys_path = self.folder / "rows.bin", self.folder / "keys.bin"

    def has_room_for(self, rows: int) -> bool:
        """Return whether this many more rows fit on the disk and the folder is writable."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return False
        return os.access(self.folder, os.W_OK) and free - rows * self.row_bytes > FREE_BYTES_LEFT

    def find(self) -> dict[bytes, int]:
        """Return the row of each key."""
        try:
            keys = self.keys_path.read_bytes()
            num_rows = self._num_rows()
        except OSError:
            return {}
        rows = {keys[row * KEY_BYTES : (row + 1) * KEY_BYTES]: row for row in range(num_rows)}
        rows.pop(NO_KEY, None)
        return rows

    @contextmanager
    def writing(self) -> Iterator[int]:
        """Lock the cache against other processes and yield the number of the first free row."""
        with FileLock(self.folder / "lock"):
            for path in (self.rows_path, self.keys_path):
                path.touch()
            rows = self._num_rows()
            with self.keys_path.open("r+b") as keys:
                keys.truncate(rows * KEY_BYTES)  # remove a key that a crash cut short, and keys without rows
            yield rows

    def _num_rows(self) -> int:
        """Return the number of rows that are there together with their key."""
        return min(self.keys_path.stat().st_size // KEY_BYTES, self.rows_path.stat().st_size // self.row_bytes)

    def commit(self, keys: list[bytes]) -> None:
        """Add the keys of the new rows, which must be in rows.bin already. `NO_KEY` marks a row without an image."""
        with self.rows_path.open("ab") as rows:
            os.fsync(rows.fileno())
        with self.keys_path.open("ab") as file:
            file.write(b"".join(keys))
            file.flush()
            os.fsync(file.fileno())


def pixel_cache(folder: Path, size: int) -> RowCache:
    """Return the cache for `size` x `size` RGB pixels, stored channel by channel. Each size has its own cache."""
    return RowCache(folder / "pixels-1" / str(size), size * size * 3)  # increase the number when decoding changes


def read_rows(rows_path: Path, rows: list[int], row_bytes: int, out: memoryview) -> None:
    """Read rows into `out`, one after the other. Rows that follow each other on disk are read in one call."""
    with rows_path.open("rb", buffering=0) as file:
        start = 0
        while start < len(rows):
            end = start + 1
            while end < len(rows) and rows[end] == rows[end - 1] + 1:
                end += 1
            target = out[start * row_bytes : end * row_bytes]
            file.seek(rows[start] * row_bytes)
            if file.readinto(target) != len(target):
                raise OSError(f"{rows_path} is shorter than keys.bin says; delete the folder {rows_path.parent}")
            start = end


def write_row(file: BinaryIO, row: int, pixels: bytes) -> None:
    """Write the pixels of one row to an unbuffered file."""
    file.seek(row * len(pixels))
    if file.write(pixels) != len(pixels):
        raise OSError("the disk is full")
