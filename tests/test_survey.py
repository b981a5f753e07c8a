"""Every file is read once, and again only when it has changed."""

import os
import time
from pathlib import Path

import pytest
from worlds import write_photos

from openworld.data import survey as module
from openworld.data.dataset import Files
from openworld.data.store import Store
from openworld.data.survey import survey

CACHE = Path("cache")
SIZE = 8


@pytest.fixture
def files() -> Files:
    """Nine images, all of them changed long ago."""
    root = write_photos(Path("photos"), sides=(6, 12), unlabelled=9)
    paths = sorted(str(path.relative_to(root)) for path in root.glob("unlabelled/*/*"))
    for path in paths:
        os.utime(root / path, (1, 1))
    return Files(root, tuple(paths))


@pytest.fixture
def studied(monkeypatch) -> list[str]:
    """The files that were really read."""
    original, paths = module.study, []

    def study(some, *rest):
        paths.extend(some)
        return original(some, *rest)

    monkeypatch.setattr(module, "study", study)
    return paths


def look(files: Files, workers: int = 0, size: int = SIZE, with_store: bool = True):
    store = Store(CACHE, size) if with_store else None
    if store:
        assert store.has_room_for(len(files))
    return survey(files, store, size, CACHE, workers, lambda done, total: None)


@pytest.mark.parametrize("with_store", [True, False])
def test_files_are_read_once(files, studied, with_store):
    first = look(files, with_store=with_store)
    assert len(studied) == len(files) == len({fact.key for fact in first})
    assert look(files, with_store=with_store) == first
    assert len(studied) == len(files)


def test_workers_find_what_this_process_finds(files, monkeypatch):
    monkeypatch.setattr(module, "FILES_PER_TASK", 2)
    monkeypatch.setattr(module, "ROWS_PER_COMMIT", 3)
    facts = look(files, workers=2)
    assert facts == survey(files, None, SIZE, Path("elsewhere"), 0, lambda done, total: None)
    rows = Store(CACHE, SIZE).find()
    assert [rows[fact.key] for fact in facts] == list(range(len(files)))


def test_only_what_changed_is_read_again(files, studied):
    before = look(files)
    changed = files.root / files.paths[4]
    changed.write_bytes((files.root / files.paths[5]).read_bytes() + b"\0")
    os.utime(changed, (2, 2))
    del studied[:]
    after = look(files)
    assert studied == [str(changed)]
    assert [number for number in range(len(files)) if before[number] != after[number]] == [4]


def test_a_file_changed_a_moment_ago_is_not_trusted(files, studied):
    """Its time stamp may not tell the next change from this one."""
    fresh = files.root / files.paths[0]
    os.utime(fresh, (time.time(), time.time()))
    look(files)
    del studied[:]
    look(files)
    assert studied == [str(fresh)]


def test_another_size_needs_the_pixels_but_not_the_verdict(files, studied):
    facts = look(files)
    del studied[:]
    assert look(files, size=5) == facts
    assert len(studied) == len(files)


def test_broken_files_are_remembered_with_their_reason(files, studied):
    broken = files.root / files.paths[3]
    broken.write_text("not an image")
    os.utime(broken, (1, 1))
    fact = look(files)[3]
    assert "is not an image" in fact.problem
    del studied[:]
    assert look(files)[3] == fact
    assert studied == []
    assert fact.key not in Store(CACHE, SIZE).find()


def test_a_file_that_vanished_is_a_problem_and_not_a_crash(files):
    look(files)
    (files.root / files.paths[2]).unlink()
    assert "cannot be read" in look(files)[2].problem


def test_a_moved_file_keeps_its_pixels(files, studied):
    look(files)
    before = Store(CACHE, SIZE).rows_path.stat().st_size
    (files.root / files.paths[0]).rename(files.root / "unlabelled" / "moved.png")
    moved = Files(files.root, ("unlabelled/moved.png", *files.paths[1:]))
    facts = look(moved)
    assert all(fact.key in Store(CACHE, SIZE).find() for fact in facts)
    assert Store(CACHE, SIZE).rows_path.stat().st_size <= before + SIZE * SIZE * 3


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"files": {"a": 1}}'])
def test_a_damaged_memory_is_made_again(files, damage):
    facts = look(files)
    (memory,) = (CACHE / "files-1").iterdir()
    memory.write_text(damage)
    assert look(files) == facts


def test_progress_is_told(files):
    told = []
    survey(files, None, SIZE, CACHE, 0, lambda done, total: told.append((done, total)))
    assert told == [(number + 1, len(files)) for number in range(len(files))]
