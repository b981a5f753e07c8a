"""Every file is read once, and again only when it has changed."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from worlds import write_photos

from openworld.core.errors import UserError
from openworld.data import survey as module
from openworld.data.dataset import Files
from openworld.data.row_cache import KEY_BYTES, RowCache, pixel_cache
from openworld.data.survey import survey

CACHE = Path("cache")
SIZE = 8


@pytest.fixture
def files(monkeypatch) -> Files:
    """Nine images, taken as settled."""
    monkeypatch.setattr(module, "SETTLED_NS", 0)
    root = write_photos(Path("photos"), sides=(6, 12), unlabelled=9)
    return Files(root, tuple(sorted(str(path.relative_to(root)) for path in root.glob("unlabelled/*/*"))))


@pytest.fixture
def hashed(monkeypatch) -> list[str]:
    """The files that were really read."""
    original, paths = module.hash_files, []

    def hash_files(some):
        paths.extend(some)
        return original(some)

    monkeypatch.setattr(module, "hash_files", hash_files)
    return paths


@pytest.fixture
def decoded(monkeypatch) -> list[str]:
    """The files that were really decoded."""
    original, paths = module.decode_files, []

    def decode_files(items, *rest):
        paths.extend(path for path, *_ in items)
        return original(items, *rest)

    monkeypatch.setattr(module, "decode_files", decode_files)
    return paths


def look(files: Files, workers: int = 0, size: int = SIZE, cache: Path = CACHE):
    return survey(files, pixel_cache(cache, size), size, cache, workers, lambda done, total: None)


@pytest.mark.parametrize("has_room", [True, False])
def test_files_are_read_once(files, hashed, decoded, monkeypatch, has_room):
    if not has_room:
        monkeypatch.setattr(RowCache, "has_room_for", lambda self, rows: False)
    first = look(files)
    assert len(hashed) == len(decoded) == len(files) == len({fact.key for fact in first})
    assert look(files) == first
    assert len(hashed) == len(decoded) == len(files)
    assert len(pixel_cache(CACHE, SIZE).find()) == (len(files) if has_room else 0)


def test_workers_find_what_this_process_finds(files, monkeypatch):
    monkeypatch.setattr(module, "FILES_PER_TASK", 2)
    monkeypatch.setattr(module, "ROWS_PER_COMMIT", 3)
    facts = look(files, workers=2)
    assert facts == look(files, cache=Path("elsewhere"))
    rows = pixel_cache(CACHE, SIZE).find()
    assert [rows[fact.key] for fact in facts] == list(range(len(files)))


def test_only_what_changed_is_read_again(files, hashed, decoded):
    before = look(files)
    changed = files.root / files.paths[4]
    changed.write_bytes((files.root / files.paths[5]).read_bytes() + b"\0")
    del hashed[:], decoded[:]
    after = look(files)
    assert hashed == decoded == [str(changed)]
    assert [number for number in range(len(files)) if before[number] != after[number]] == [4]


def test_a_change_that_keeps_size_and_time_is_noticed(files, hashed):
    look(files)
    victim = files.root / files.paths[0]
    status, content = victim.stat(), bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    os.utime(victim, ns=(status.st_atime_ns, status.st_mtime_ns))
    del hashed[:]
    look(files)
    assert hashed == [str(victim)]


def test_a_file_changed_a_moment_ago_is_not_trusted(files, hashed, decoded, monkeypatch):
    """Its time stamp may not tell the next change from this one; but its pixels are known by their hash."""
    monkeypatch.setattr(module, "SETTLED_NS", 60 * 10**9)
    look(files)
    look(files)
    assert len(hashed) == 2 * len(files)
    assert len(decoded) == len(files)


def test_a_file_that_changes_between_two_looks_gives_its_pixels_to_no_hash(files, monkeypatch):
    victim, original = Path(files.full_path(0)), module.hash_files

    def hash_files(paths):
        facts = original(paths)
        shutil.copy(files.full_path(1), victim)
        return facts

    with monkeypatch.context() as patch:
        patch.setattr(module, "hash_files", hash_files)
        with pytest.raises(UserError, match=f"{victim.name} changed while"):
            look(files)
    facts = look(files)
    assert not any(fact.problem for fact in facts)
    assert {fact.key for fact in facts} == pixel_cache(CACHE, SIZE).find().keys()


def test_another_size_needs_the_pixels_but_not_the_verdict(files, hashed, decoded):
    facts = look(files)
    del hashed[:], decoded[:]
    assert look(files, size=5) == facts
    assert (len(hashed), len(decoded)) == (0, len(files))


def test_broken_files_are_remembered_with_their_reason(files, hashed, decoded):
    broken = files.root / files.paths[3]
    broken.write_text("not an image")
    fact = look(files)[3]
    assert "is not an image" in fact.problem
    del hashed[:], decoded[:]
    assert look(files)[3] == fact
    assert hashed == decoded == []
    assert fact.key not in pixel_cache(CACHE, SIZE).find()


def test_a_file_that_could_not_be_read_is_tried_again(files, monkeypatch):
    victim, read_bytes = files.paths[2], Path.read_bytes

    def refuse(self):
        if str(self).endswith(victim):
            raise PermissionError(13, "Permission denied")
        return read_bytes(self)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", refuse)
        assert look(files)[2].problem == "cannot be read (Permission denied)"
    assert look(files)[2].problem is None


def test_a_store_that_cannot_be_written_is_named(files, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_row", fail)
    with pytest.raises(UserError, match=r"cache/pixels-1/8: .*No space left.*XDG_CACHE_HOME"):
        look(files)


def test_a_file_that_vanished_is_a_problem_and_not_a_crash(files):
    look(files)
    (files.root / files.paths[2]).unlink()
    assert "cannot be read" in look(files)[2].problem


def test_moved_copied_and_shared_images_are_not_decoded_again(files, decoded):
    look(files)
    keys = pixel_cache(CACHE, SIZE).keys_path.stat().st_size
    files.root.rename("elsewhere")
    shutil.copy(f"elsewhere/{files.paths[0]}", "elsewhere/unlabelled/copy.png")
    del decoded[:]
    facts = look(Files(Path("elsewhere"), ("unlabelled/copy.png", *files.paths)))
    assert decoded == []
    assert facts[0] == facts[1]
    assert pixel_cache(CACHE, SIZE).keys_path.stat().st_size == keys


def test_what_another_process_stored_meanwhile_is_not_stored_twice(files, decoded, monkeypatch):
    """The other one works while this one waits for the lock."""
    original = RowCache.writing

    @contextmanager
    def after_another(self):
        monkeypatch.setattr(RowCache, "writing", original)
        look(files)
        del decoded[:]
        with original(self) as first_row:
            yield first_row

    monkeypatch.setattr(RowCache, "writing", after_another)
    look(files)
    assert decoded == []
    assert len(pixel_cache(CACHE, SIZE).find()) * KEY_BYTES == pixel_cache(CACHE, SIZE).keys_path.stat().st_size


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"a": 1}', '{"a": [1, 2]}', "3"])
def test_a_damaged_memory_is_made_again(files, damage):
    facts = look(files)
    (memory,) = (CACHE / "files-1").iterdir()
    memory.write_text(damage)
    assert look(files) == facts


def test_progress_is_told(files):
    told = []
    survey(files, pixel_cache(CACHE, SIZE), SIZE, CACHE, 0, lambda done, total: told.append((done, total)))
    assert told == 2 * [(number + 1, len(files)) for number in range(len(files))]  # hashed, then decoded
