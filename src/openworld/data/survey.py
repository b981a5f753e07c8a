"""Every image file is read once: what it holds is remembered, and its pixels go into the store."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openworld.core.errors import UserError
from openworld.core.files import write_to_cache
from openworld.data.dataset import Files
from openworld.data.decode import BadImage, decode
from openworld.data.pixel_cache import NO_KEY, PixelCache, write_row
from openworld.data.pool import in_pieces

FILES_PER_TASK = 64
ROWS_PER_COMMIT = 2048
CHANGED = "changed while it was read"
SETTLED_NS = 2 * 10**9
"""A file changed this shortly before it was read may change again without a new time."""


@dataclass(frozen=True)
class Fact:
    """What is known of a file."""

    key: bytes
    """The sha256 of its content."""
    problem: str | None
    """Why it is no image that can be used, if so."""


def survey(
    files: Files, store: PixelCache, size: int, cache: Path, workers: int, tell: Callable[[int, int], None]
) -> list[Fact]:
    """The facts of every file; pixels that are not in the store yet are put there, as long as there is room.

    First what has changed is hashed, then what has an unknown hash is decoded. `tell(done, total)` hears of both.
    """
    remembered = FileFacts(cache, files.root)
    facts = [remembered.fact(path, files.full_path(n)) for n, path in enumerate(files.paths)]
    new = [position for position, fact in enumerate(facts) if fact is None]
    hashed = in_pieces(workers, hash_files, [files.full_path(position) for position in new], FILES_PER_TASK)
    for number, fact in enumerate(hashed):
        facts[new[number]] = fact
        tell(number + 1, len(new))
    unproven = {facts[position].key for position in new}
    wanted = {fact.key: files.full_path(position) for position, fact in enumerate(facts) if not fact.problem}
    problems = _decoded(wanted, unproven, store, size, workers, tell)
    if CHANGED in problems.values():  # says nothing of others with that key, nor of the file from now on
        path = next(wanted[key] for key, problem in problems.items() if problem == CHANGED)
        raise UserError(f"{path} {CHANGED}: run it again when nothing writes there")
    facts = [Fact(fact.key, fact.problem or problems.get(fact.key)) for fact in facts]
    remembered.save(zip(files.paths, facts, strict=True))
    return facts


def _decoded(
    wanted: dict[bytes, str],
    unproven: set[bytes],
    store: PixelCache,
    size: int,
    workers: int,
    tell: Callable[[int, int], None],
) -> dict[bytes, str]:
    """What is wrong with files, by their keys; the others are in the store, or at least known to be sound."""

    def missing() -> list[bytes]:
        stored = store.find()
        return [key for key in wanted if key not in stored]

    problems: dict[bytes, str] = {}
    todo = missing()
    if not todo:
        return problems
    if not store.has_room_for(len(todo)):
        todo = [key for key in todo if key in unproven]
        items = [(wanted[key], key, 0) for key in todo]
        for number, problem in enumerate(in_pieces(workers, decode_files, items, FILES_PER_TASK, size, None)):
            problems |= {todo[number]: problem} if problem else {}
            tell(number + 1, len(todo))
        return problems
    try:
        with store.writing() as first_row:
            todo = missing()  # another process may have been at work while this one waited
            items = [(wanted[key], key, first_row + number) for number, key in enumerate(todo)]
            uncommitted = []
            found = in_pieces(workers, decode_files, items, FILES_PER_TASK, size, str(store.rows_path))
            for number, problem in enumerate(found):
                problems |= {todo[number]: problem} if problem else {}
                uncommitted.append(NO_KEY if problem else todo[number])
                if len(uncommitted) == ROWS_PER_COMMIT or number == len(todo) - 1:
                    store.commit(uncommitted)
                    uncommitted = []
                tell(number + 1, len(todo))
    except OSError as error:
        raise UserError(
            f"{store.folder}: decoded images cannot be kept there ({error.strerror or error}); "
            "make room, or set XDG_CACHE_HOME to another place"
        ) from None
    return problems


def hash_files(paths: list[str]) -> list[Fact]:
    facts = []
    for path in paths:
        try:
            facts.append(Fact(hashlib.sha256(Path(path).read_bytes()).digest(), None))
        except OSError as error:
            facts.append(Fact(NO_KEY, f"cannot be read ({error.strerror})"))
    return facts


def decode_files(items: list[tuple[str, bytes, int]], size: int, rows_path: str | None) -> list[str | None]:
    """Decode files, each into its row of the store if there is one; and say what is wrong with them.

    A file must still have the content of its key, or that key would stand for another image for good.
    """
    rows = os.open(rows_path, os.O_WRONLY | os.O_CREAT, 0o644) if rows_path else None
    problems: list[str | None] = []
    try:
        for path, key, row in items:
            try:
                pixels = decode(_content(path, key), size)
            except BadImage as error:
                problems.append(str(error))
                continue
            if rows is not None:
                write_row(rows, row, pixels.transpose(2, 0, 1).tobytes())
            problems.append(None)
    finally:
        if rows is not None:
            os.close(rows)
    return problems


def _content(path: str, key: bytes) -> bytes:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadImage(f"cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).digest() != key:
        raise BadImage(CHANGED)
    return content


class FileFacts:
    """The facts of files under a root, for as long as their size and times of change stay the same."""

    def __init__(self, cache: Path, root: Path):
        self.path = cache / "files-1" / f"{hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:32]}.json"
        self.entries: dict[str, list] = {}
        try:
            for path, (size, changed, status_changed, key, problem) in json.loads(self.path.read_text()).items():
                self.entries[path] = [size, changed, status_changed, key, problem]
        except (OSError, ValueError, TypeError, AttributeError):
            self.entries = {}  # it can be found out again
        self.states: dict[str, tuple[int, int, int]] = {}
        self.opened_ns = time.time_ns()

    def fact(self, path: str, full_path: str) -> Fact | None:
        try:
            status = os.stat(full_path)
        except OSError:
            return None
        self.states[path] = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        *state, key, problem = self.entries.get(path, (None, "", None))
        return Fact(bytes.fromhex(key), problem) if tuple(state) == self.states[path] else None

    def save(self, facts: Iterator[tuple[str, Fact]]) -> None:
        before = dict(self.entries)
        for path, fact in facts:
            state = self.states.get(path)
            if state and fact.key != NO_KEY and state[2] < self.opened_ns - SETTLED_NS:
                self.entries[path] = [*state, fact.key.hex(), fact.problem]
        if self.entries != before:  # without a memory the next run reads all files again
            write_to_cache(self.path, json.dumps(self.entries).encode())
