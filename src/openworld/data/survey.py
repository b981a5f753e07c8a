"""Every image file is read once: what it holds is remembered, and its pixels go into the store."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from openworld.data.dataset import Files
from openworld.data.decode import BadImage, decode
from openworld.data.pool import Pool, result_of
from openworld.data.store import NO_KEY, Store, write_row

FILES_PER_TASK = 64
ROWS_PER_COMMIT = 2048
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
    files: Files, store: Store | None, size: int, cache: Path, workers: int, tell: Callable[[int, int], None]
) -> list[Fact]:
    """The facts of every file; what is not known yet is found out, and what is not in the store yet is put there.

    `tell(done, total)` hears of the progress.
    """
    remembered = Remembered(cache, files.root)
    facts: list[Fact | None] = [remembered.fact(path, files.full_path(n)) for n, path in enumerate(files.paths)]
    stored = store.find() if store else None

    def is_missing(fact: Fact | None) -> bool:
        return fact is None or (stored is not None and not fact.problem and fact.key not in stored)

    todo = [position for position, fact in enumerate(facts) if is_missing(fact)]
    if todo:
        paths = [files.full_path(position) for position in todo]
        for number, fact in enumerate(_studied(paths, store, size, workers)):
            facts[todo[number]] = fact
            tell(number + 1, len(todo))
        remembered.save(zip(files.paths, facts, strict=True))
    return facts


def _studied(paths: list[str], store: Store | None, size: int, workers: int) -> Iterator[Fact]:
    """The facts of the files, in their order; their pixels go into the store."""
    pool = Pool(min(workers, -(-len(paths) // FILES_PER_TASK)))
    tasks = [paths[start : start + FILES_PER_TASK] for start in range(0, len(paths), FILES_PER_TASK)]
    try:
        if store is None:
            for future in [pool.submit(study, task, size, None, 0) for task in tasks]:
                yield from result_of(future)
            return
        with store.writing() as first_row:
            starts = range(first_row, first_row + len(paths), FILES_PER_TASK)
            futures = [
                pool.submit(study, task, size, str(store.rows_path), row)
                for task, row in zip(tasks, starts, strict=True)
            ]
            uncommitted: list[bytes] = []
            for future in futures:
                facts = result_of(future)
                uncommitted += [NO_KEY if fact.problem else fact.key for fact in facts]
                if len(uncommitted) >= ROWS_PER_COMMIT or future is futures[-1]:
                    store.commit(uncommitted)
                    uncommitted = []
                yield from facts
    finally:
        pool.close()


def study(paths: list[str], size: int, rows_path: str | None, first_row: int) -> list[Fact]:
    """Read, hash and decode some files, and write their pixels to the rows from the given one on."""
    rows = os.open(rows_path, os.O_WRONLY | os.O_CREAT, 0o644) if rows_path else None
    facts = []
    try:
        for number, path in enumerate(paths):
            try:
                content = Path(path).read_bytes()
            except OSError as error:
                facts.append(Fact(NO_KEY, f"cannot be read ({error.strerror})"))
                continue
            problem = None
            try:
                pixels = decode(content, size)
                if rows is not None:
                    write_row(rows, first_row + number, pixels.tobytes())
            except BadImage as error:
                problem = str(error)
            facts.append(Fact(hashlib.sha256(content).digest(), problem))
    finally:
        if rows is not None:
            os.close(rows)
    return facts


class Remembered:
    """The facts of files under a root, for as long as their size and time of change stay the same."""

    def __init__(self, cache: Path, root: Path):
        self.path = cache / "files-1" / f"{hashlib.sha256(str(root.absolute()).encode()).hexdigest()[:32]}.json"
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.entries: dict[str, list] = content["files"]
        except (OSError, ValueError, KeyError, TypeError):
            self.entries = {}  # it can be found out again
        self.states: dict[str, tuple[int, int]] = {}
        self.opened_ns = time.time_ns()

    def fact(self, path: str, full_path: str) -> Fact | None:
        try:
            status = os.stat(full_path)
        except OSError:
            return None
        self.states[path] = status.st_size, status.st_mtime_ns
        size, changed_ns, key, problem = self.entries.get(path, (None, None, "", None))
        return Fact(bytes.fromhex(key), problem) if (size, changed_ns) == self.states[path] else None

    def save(self, facts: Iterator[tuple[str, Fact]]) -> None:
        for path, fact in facts:
            size, changed_ns = self.states.get(path, (0, self.opened_ns))
            if changed_ns < self.opened_ns - SETTLED_NS:
                self.entries[path] = [size, changed_ns, fact.key.hex(), fact.problem]
        aside = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps({"files": self.entries}), encoding="utf-8")
            aside.replace(self.path)
        except OSError:  # without a memory the next run reads all files again
            aside.unlink(missing_ok=True)
