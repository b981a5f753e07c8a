"""Read every image file once: remember its hash and whether it is usable, and put its pixels into the pixel cache."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from openworld.core.errors import UserError
from openworld.core.files import write_to_cache
from openworld.data.dataset import Files
from openworld.data.decode import BadImage, decode
from openworld.data.pool import in_pieces
from openworld.data.row_cache import NO_KEY, RowCache, write_row

FILES_PER_TASK = 64
ROWS_PER_COMMIT = 2048
CHANGED = "changed while it was read"
SETTLED_NS = 2 * 10**9
"""Nanoseconds. A file that changed this recently may change again without a new time stamp, so it is not remembered."""


@dataclass(frozen=True)
class Fact:
    """The result of reading one file."""

    key: bytes
    """sha256 of the content, or `NO_KEY` if the file cannot be read."""
    problem: str | None
    """Why the file cannot be used as an image. None if it can."""


def survey(
    files: Files, pixel_cache: RowCache, size: int, cache: Path, workers: int, tell: Callable[[int, int], None]
) -> list[Fact]:
    """Return the facts of every file, and add missing pixels to the pixel cache if the disk has room for them.

    This first hashes the files that have changed, then decodes the files whose hash is new.

    Args:
        files: The image files.
        pixel_cache: Cache of the pixels.
        size: Side of the decoded images.
        cache: Folder in which the facts are remembered.
        workers: Number of worker processes.
        tell: Called as `tell(done, total)` after each file, in both passes.
    """
    file_facts = FileFacts(cache, files.root)
    facts = [file_facts.fact(path, files.full_path(n)) for n, path in enumerate(files.paths)]
    new = [position for position, fact in enumerate(facts) if fact is None]
    hashed = in_pieces(workers, hash_files, [files.full_path(position) for position in new], FILES_PER_TASK)
    for number, fact in enumerate(hashed):
        facts[new[number]] = fact
        tell(number + 1, len(new))
    unproven = {facts[position].key for position in new}
    wanted = {fact.key: files.full_path(position) for position, fact in enumerate(facts) if not fact.problem}
    problems = _decode_missing(wanted, unproven, pixel_cache, size, workers, tell)
    if CHANGED in problems.values():  # this is not a lasting fact about the file or about others with this key
        path = next(wanted[key] for key, problem in problems.items() if problem == CHANGED)
        raise UserError(f"{path} {CHANGED}; run the command again when no program writes to the file")
    facts = [Fact(fact.key, fact.problem or problems.get(fact.key)) for fact in facts]
    file_facts.save(zip(files.paths, facts, strict=True))
    return facts


def _decode_missing(
    wanted: dict[bytes, str],
    unproven: set[bytes],
    pixel_cache: RowCache,
    size: int,
    workers: int,
    tell: Callable[[int, int], None],
) -> dict[bytes, str]:
    """Decode the files that the pixel cache does not hold. Return the problems of unusable files, by key.

    If the disk has no room for the pixels, only the `unproven` files are decoded, to find the broken ones.

    Args:
        wanted: Path of a file for each key.
        unproven: Keys of the files that were just hashed, so it is not yet known whether they can be decoded.
        pixel_cache: Cache of the pixels.
        size: Side of the decoded images.
        workers: Number of worker processes.
        tell: Called as `tell(done, total)` after each file.
    """

    def missing() -> list[bytes]:
        stored = pixel_cache.find()
        return [key for key in wanted if key not in stored]

    problems: dict[bytes, str] = {}
    todo = missing()
    if not todo:
        return problems
    if not pixel_cache.has_room_for(len(todo)):
        todo = [key for key in todo if key in unproven]
        items = [(wanted[key], key, 0) for key in todo]
        for number, problem in enumerate(in_pieces(workers, decode_files, items, FILES_PER_TASK, size, None)):
            problems |= {todo[number]: problem} if problem else {}
            tell(number + 1, len(todo))
        return problems
    try:
        with pixel_cache.writing() as first_row:
            todo = missing()  # another process may have written rows while this one waited for the lock
            items = [(wanted[key], key, first_row + number) for number, key in enumerate(todo)]
            uncommitted = []
            found = in_pieces(workers, decode_files, items, FILES_PER_TASK, size, str(pixel_cache.rows_path))
            for number, problem in enumerate(found):
                problems |= {todo[number]: problem} if problem else {}
                uncommitted.append(NO_KEY if problem else todo[number])
                if len(uncommitted) == ROWS_PER_COMMIT or number == len(todo) - 1:
                    pixel_cache.commit(uncommitted)
                    uncommitted = []
                tell(number + 1, len(todo))
    except OSError as error:
        raise UserError(
            f"{pixel_cache.folder}: cannot write the cache of decoded images ({error.strerror or error}); "
            "free some disk space, or set XDG_CACHE_HOME to another folder"
        ) from None
    return problems


def hash_files(paths: list[str]) -> list[Fact]:
    """Return the hash of each file, or the reason why it cannot be read."""
    facts = []
    for path in paths:
        try:
            facts.append(Fact(hashlib.sha256(Path(path).read_bytes()).digest(), None))
        except OSError as error:
            facts.append(Fact(NO_KEY, f"cannot be read ({error.strerror})"))
    return facts


def decode_files(items: list[tuple[str, bytes, int]], size: int, rows_path: str | None) -> list[str | None]:
    """Decode files and return the problem of each one, or None. Write the pixels to `rows_path` if it is given.

    A file must still have the content of its key. Otherwise the cache would keep the wrong image under this key.

    Args:
        items: For each file its path, key and row in the pixel cache.
        size: Side of the decoded images.
        rows_path: File of the pixel cache that holds the rows.
    """
    problems: list[str | None] = []
    with open(rows_path, "r+b", buffering=0) if rows_path else nullcontext() as rows:
        for path, key, row in items:
            try:
                pixels = decode(_content(path, key), size)
            except BadImage as error:
                problems.append(str(error))
                continue
            if rows is not None:
                write_row(rows, row, pixels.transpose(2, 0, 1).tobytes())
            problems.append(None)
    return problems


def _content(path: str, key: bytes) -> bytes:
    """Return the content of a file. Raise `BadImage` if its hash is not the key."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadImage(f"cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).digest() != key:
        raise BadImage(CHANGED)
    return content


class FileFacts:
    """The facts of the files in a folder, saved on disk. A fact is valid while its file keeps its size and times."""

    def __init__(self, cache: Path, root: Path):
        self.path = cache / "files-1" / f"{hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:32]}.json"
        self.entries: dict[str, list] = {}
        try:
            for path, (size, changed, status_changed, key, problem) in json.loads(self.path.read_text()).items():
                self.entries[path] = [size, changed, status_changed, key, problem]
        except (OSError, ValueError, TypeError, AttributeError):
            self.entries = {}  # the survey can find the facts again
        self.states: dict[str, tuple[int, int, int]] = {}
        self.opened_ns = time.time_ns()

    def fact(self, path: str, full_path: str) -> Fact | None:
        """Return the fact of a file, or None if it is unknown or the file has changed."""
        try:
            status = os.stat(full_path)
        except OSError:
            return None
        self.states[path] = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        *state, key, problem = self.entries.get(path, (None, "", None))
        return Fact(bytes.fromhex(key), problem) if tuple(state) == self.states[path] else None

    def save(self, facts: Iterator[tuple[str, Fact]]) -> None:
        """Save the facts of the files that have not changed in the last `SETTLED_NS` nanoseconds."""
        before = dict(self.entries)
        for path, fact in facts:
            state = self.states.get(path)
            if state and fact.key != NO_KEY and state[2] < self.opened_ns - SETTLED_NS:
                self.entries[path] = [*state, fact.key.hex(), fact.problem]
        if self.entries != before:  # if the cache cannot be written, the next run reads these files again
            write_to_cache(self.path, json.dumps(self.entries).encode())
