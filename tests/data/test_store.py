"""The store of decoded images: rows are found by content and are never incomplete."""

import os
from pathlib import Path

import pytest

from openworld.data import store as module
from openworld.data.store import KEY_BYTES, NO_KEY, Store, read_rows, write_row

SIZE = 2
ROW = SIZE * SIZE * 3


def key(number: int) -> bytes:
    return bytes([number]) * KEY_BYTES


def filled(numbers: list[int]) -> Store:
    """Return a store that holds, for each number, a row filled with that byte."""
    store = Store(Path("cache"), SIZE)
    assert store.has_room_for(len(numbers))
    with store.writing() as first:
        put(store, first, numbers)
        store.commit([key(number) for number in numbers])
    return store


def put(store: Store, first: int, numbers: list[int]) -> None:
    file = os.open(store.rows_path, os.O_WRONLY | os.O_CREAT)
    for row, number in enumerate(numbers):
        write_row(file, first + row, bytes([number]) * ROW)
    os.close(file)


def read(store: Store, rows: list[int]) -> list[int]:
    out = bytearray(len(rows) * ROW)
    read_rows(store.rows_path, rows, ROW, memoryview(out))
    assert all(len(set(out[start : start + ROW])) == 1 for start in range(0, len(out), ROW))
    return list(out[::ROW])


def test_rows_are_found_by_their_key_and_read_in_any_order():
    store = filled([5, 6, 7])
    assert store.find() == {key(5): 0, key(6): 1, key(7): 2}
    assert read(store, [2, 0, 1, 1, 2]) == [7, 5, 6, 6, 7]


def test_later_rows_come_after_earlier_ones():
    filled([5, 6])
    store = filled([7])
    assert store.find()[key(7)] == 2
    assert read(store, [0, 1, 2]) == [5, 6, 7]


def test_a_row_without_a_key_is_nobodys_and_overwritten():
    store = filled([5])
    put(store, 1, [9, 9])  # a process died here, before it committed
    assert set(store.find()) == {key(5)}
    store = filled([6])
    assert read(store, [store.find()[key(6)]]) == [6]


def test_a_key_that_was_cut_short_is_dropped():
    store = filled([5])
    with store.keys_path.open("ab") as file:
        file.write(b"half")
    filled([6])
    assert store.find() == {key(5): 0, key(6): 1}


def test_broken_images_leave_a_hole_that_nothing_finds():
    store = Store(Path("cache"), SIZE)
    assert store.has_room_for(2)
    with store.writing() as first:
        put(store, first, [1, 2])
        store.commit([NO_KEY, key(2)])
    assert store.find() == {key(2): 1}


def test_sizes_have_stores_of_their_own():
    filled([5])
    assert Store(Path("cache"), SIZE + 1).find() == {}


def test_a_full_disk_or_a_folder_that_cannot_be_written_has_no_room(monkeypatch):
    store = Store(Path("cache"), SIZE)
    usage = module.shutil.disk_usage(".")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=module.FREE_BYTES_LEFT + ROW))
    assert not store.has_room_for(1)
    Path("file").write_text("")
    assert not Store(Path("file"), SIZE).has_room_for(0)


def test_rows_that_are_gone_are_named():
    store = filled([5, 6])
    os.truncate(store.rows_path, ROW + 1)
    with pytest.raises(OSError, match=r"rows\.bin is shorter than its keys say"):
        read(store, [0, 1])
