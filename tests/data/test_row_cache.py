"""Decoded images on disk: found by content, and never half."""

import os
from pathlib import Path

import pytest

from openworld.data import row_cache as module
from openworld.data.row_cache import KEY_BYTES, NO_KEY, RowCache, pixel_cache, read_rows, write_row

SIZE = 2
ROW = SIZE * SIZE * 3


def key(number: int) -> bytes:
    return bytes([number]) * KEY_BYTES


def filled(numbers: list[int]) -> RowCache:
    """A cache that holds, for each number, a row of that byte."""
    cache = pixel_cache(Path("cache"), SIZE)
    assert cache.has_room_for(len(numbers))
    with cache.writing() as first:
        put(cache, first, numbers)
        cache.commit([key(number) for number in numbers])
    return cache


def put(cache: RowCache, first: int, numbers: list[int]) -> None:
    with cache.rows_path.open("r+b", buffering=0) as file:
        for row, number in enumerate(numbers):
            write_row(file, first + row, bytes([number]) * ROW)


def read(cache: RowCache, rows: list[int]) -> list[int]:
    out = bytearray(len(rows) * ROW)
    read_rows(cache.rows_path, rows, ROW, memoryview(out))
    assert all(len(set(out[start : start + ROW])) == 1 for start in range(0, len(out), ROW))
    return list(out[::ROW])


def test_rows_are_found_by_their_key_and_read_in_any_order():
    cache = filled([5, 6, 7])
    assert cache.find() == {key(5): 0, key(6): 1, key(7): 2}
    assert read(cache, [2, 0, 1, 1, 2]) == [7, 5, 6, 6, 7]


def test_later_rows_come_after_earlier_ones():
    filled([5, 6])
    cache = filled([7])
    assert cache.find()[key(7)] == 2
    assert read(cache, [0, 1, 2]) == [5, 6, 7]


def test_a_row_without_a_key_is_nobodys_and_overwritten():
    cache = filled([5])
    put(cache, 1, [9, 9])  # a process died here, before it committed
    assert set(cache.find()) == {key(5)}
    cache = filled([6])
    assert read(cache, [cache.find()[key(6)]]) == [6]


def test_a_key_that_was_cut_short_is_dropped():
    cache = filled([5])
    with cache.keys_path.open("ab") as file:
        file.write(b"half")
    filled([6])
    assert cache.find() == {key(5): 0, key(6): 1}


def test_broken_images_leave_a_hole_that_nothing_finds():
    cache = pixel_cache(Path("cache"), SIZE)
    assert cache.has_room_for(2)
    with cache.writing() as first:
        put(cache, first, [1, 2])
        cache.commit([NO_KEY, key(2)])
    assert cache.find() == {key(2): 1}


def test_sizes_have_stores_of_their_own():
    filled([5])
    assert pixel_cache(Path("cache"), SIZE + 1).find() == {}


def test_a_full_disk_or_a_folder_that_cannot_be_written_has_no_room(monkeypatch):
    cache = pixel_cache(Path("cache"), SIZE)
    usage = module.shutil.disk_usage(".")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=module.FREE_BYTES_LEFT + ROW))
    assert not cache.has_room_for(1)
    Path("file").write_text("")
    assert not pixel_cache(Path("file"), SIZE).has_room_for(0)


def test_rows_that_are_gone_are_named():
    cache = filled([5, 6])
    os.truncate(cache.rows_path, ROW + 1)
    with pytest.raises(OSError, match=r"rows\.bin .* delete the folder cache/pixels-1/2"):
        read(cache, [0, 1])
