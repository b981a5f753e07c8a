"""Downloads a benchmark and unpacks it: resumable, checked, and never left half.

An archive grows as .downloads/NAME.part until its md5 is right, is unpacked beside it, and only when the benchmark can
be read from there does its folder appear, by one rename. Archives are not trusted: a member that could land elsewhere,
or that is anything but a file or a folder, is enough to refuse the whole.
"""

import contextlib
import fnmatch
import gzip
import hashlib
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from openworld.core.errors import UserError
from openworld.data.benchmarks import find_benchmark, how_to_get, read_folder
from openworld.data.sources import Archive

Progress = Callable[[int, int | None, str], None]
"""Called with bytes done, bytes in all (None: not known) and what is being done."""

TIMEOUT = 30
"""Seconds without an answer or a byte from the server."""
BLOCK = 1 << 16


class Unreachable(UserError):
    """A server that does not answer."""


def fetch(name: str, data_dir: Path, progress: Progress) -> Path:
    """Brings a benchmark into `data_dir` and returns its folder; one that is already there is left as it is."""
    benchmark = find_benchmark(name)
    archives = benchmark.source.archives
    if not archives:
        raise UserError(f"{name} cannot be fetched: {how_to_get(name, data_dir)}")
    folder = data_dir / benchmark.folder
    if is_there(name, data_dir):
        return folder

    downloads = data_dir / ".downloads"
    parts = [downloads / f"{archive.file_name}.part" for archive in archives]
    try:
        downloads.mkdir(parents=True, exist_ok=True)
        for archive, part in zip(archives, parts, strict=True):
            _download(archive, part, progress)
        _install(name, parts, downloads / f"{name}.tmp", folder, progress)
    except Unreachable as error:
        raise UserError(f"{error}; or {how_to_get(name, data_dir)}") from None
    except OSError as error:
        raise UserError(
            f"{error.filename or data_dir}: cannot be written ({error.strerror or error}); make room, or choose "
            "another folder with --data-dir, and run the same command again: what is downloaded is kept"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # not empty: there is something to resume
            downloads.rmdir()
    return folder


def is_there(name: str, data_dir: Path) -> bool:
    """Whether a benchmark is in `data_dir`; a folder that is there but cannot be read is for a person to judge."""
    folder = data_dir / find_benchmark(name).folder
    if not folder.exists():
        return False
    try:
        read_folder(name, folder)
    except UserError as error:
        raise UserError(
            f"{folder} is there but cannot be used: move it away and run the same command again ({error})"
        ) from None
    return True


# Downloading.


def _download(archive: Archive, part: Path, progress: Progress) -> None:
    """Makes the part the whole archive, going on from where an earlier attempt stopped."""
    digest, done = _digest_of(part)
    if digest.hexdigest() == archive.md5:
        return
    response = _request(archive.url, start=done)
    if response is None:  # nothing comes after what we have, and that is not the archive
        part.unlink()
        return _download(archive, part, progress)
    with response:
        is_resumed = response.status == 206
        if not is_resumed:
            digest, done = _new_digest(), 0
        _check_size(archive, done, response)
        with part.open("ab" if is_resumed else "wb") as file:
            for block in _blocks(response):
                file.write(block)
                digest.update(block)
                done += len(block)
                progress(done, archive.size, f"downloading {archive.file_name}")
    if done < archive.size:
        raise UserError(
            f"{archive.url}: the connection was lost after {done:,} of {archive.size:,} bytes; these are kept, and "
            "the same command goes on from there"
        )
    if digest.hexdigest() != archive.md5:
        part.unlink()
        raise UserError(
            f"{archive.url}: md5 {digest.hexdigest()}, expected {archive.md5}: the download was damaged and is "
            "deleted; run the same command again"
        )


def _new_digest() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)


def _digest_of(part: Path) -> tuple["hashlib._Hash", int]:
    """The md5 so far and the number of bytes, none if there is no such file."""
    digest = _new_digest()
    if not part.exists():
        return digest, 0
    with part.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
        return digest, file.tell()


def _request(url: str, start: int) -> HTTPResponse | None:
    """The server's answer from byte `start` on; None where it has no such byte."""
    headers = {"User-Agent": "openworld"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None
        raise UserError(f"{url}: the server answers {error.code} {error.reason}; try again later") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise Unreachable(
            f"{url}: cannot be reached ({reason}); check the network connection and run the same command again"
        ) from None


def _check_size(archive: Archive, done: int, response: HTTPResponse) -> None:
    """Before what is downloaded is overwritten: a login page of some network must not cost two gigabytes."""
    if response.length is not None and done + response.length != archive.size:
        raise UserError(
            f"{archive.url}: the server offers {done + response.length:,} bytes, expected {archive.size:,}: not the "
            "published file; check that no proxy or login page stands in between"
        )


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    """What arrives, up to its end or to the loss of the connection."""
    with contextlib.suppress(OSError, HTTPException):
        while block := response.read(BLOCK):
            yield block


# Unpacking.

DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    ValueError,  # names that cannot be decoded
    RuntimeError,  # encrypted, or packed in a way that Python does not know
)
"""What the libraries raise for an archive that is not in order."""
UNSAFE_NAME = re.compile(r"/|[A-Za-z]:|.*[\\\0]|(.*/)?\.\.(/|$)", re.DOTALL)


@dataclass(frozen=True)
class _Member:
    name: str
    is_file: bool
    is_folder: bool
    size: int
    open: Callable[[], IO[bytes]]


def _install(name: str, parts: list[Path], unpacked: Path, folder: Path, progress: Progress) -> None:
    """Unpacks the archives together, and puts the result into place when it is whole."""
    shutil.rmtree(unpacked, ignore_errors=True)  # of an attempt that was killed
    archives = find_benchmark(name).source.archives
    try:
        for archive, part in zip(archives, parts, strict=True):
            _unpack(archive, part, unpacked, progress)
        _check_readable(name, unpacked, parts)
        folder.parent.mkdir(parents=True, exist_ok=True)
        unpacked.rename(folder)
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    for part in parts:
        part.unlink()


def _check_readable(name: str, unpacked: Path, parts: list[Path]) -> None:
    try:
        read_folder(name, unpacked)
    except UserError as error:
        kept = " and ".join(map(str, parts))
        raise UserError(f"{name}: what was fetched cannot be read ({error}); the archives are kept: {kept}") from None


def _unpack(archive: Archive, part: Path, unpacked: Path, progress: Progress) -> None:
    """Writes the wanted files of an archive below `unpacked`; an archive that is refused is deleted."""
    try:
        with part.open("rb") as file:
            num_bytes = 0
            for member in _members(archive, file):
                _check_member(archive, member)
                num_bytes += member.size
                if num_bytes > archive.unpacked_limit:
                    raise _refusal(archive, f"unpacks to more than {archive.unpacked_limit:,} bytes")
                if member.is_file and (path := _wanted_path(archive, member.name)):
                    _write(archive, member, unpacked / path)
                progress(file.tell(), archive.size, f"unpacking {archive.file_name}")
    except DAMAGE as error:
        part.unlink()
        raise _refusal(archive, f"is damaged ({error or type(error).__name__})") from error
    except UserError:
        part.unlink()
        raise


def _members(archive: Archive, file: IO[bytes]) -> Iterator[_Member]:
    if archive.file_name.endswith(".zip"):
        with zipfile.ZipFile(file) as packed:
            for info in packed.infolist():
                kind = stat.S_IFMT(info.external_attr >> 16)  # 0: packed where files have no such bits
                is_file = not info.is_dir() and kind in (0, stat.S_IFREG)
                is_folder = info.is_dir() and kind in (0, stat.S_IFDIR)
                yield _Member(info.filename, is_file, is_folder, info.file_size, partial(packed.open, info))
    else:
        with tarfile.open(fileobj=file, mode="r:gz") as packed:
            for info in packed:
                yield _Member(info.name, info.isreg(), info.isdir(), info.size, partial(packed.extractfile, info))


def _check_member(archive: Archive, member: _Member) -> None:
    if UNSAFE_NAME.match(member.name):
        raise _refusal(archive, f"has the unsafe path {member.name!r}")
    if not (member.is_file or member.is_folder):
        raise _refusal(archive, f"has a link or a device, {member.name!r}")
    if member.size < 0:
        raise _refusal(archive, f"has a wrong size for {member.name!r}")


def _wanted_path(archive: Archive, name: str) -> PurePosixPath | None:
    """Where a member belongs in the benchmark's folder; None for those that are not needed."""
    path = PurePosixPath(name)
    if not path.is_relative_to(archive.inside):
        return None
    path = path.relative_to(archive.inside)
    return path if any(_matches(path.parts, pattern.split("/")) for pattern in archive.wanted) else None


def _matches(parts: tuple[str, ...], patterns: list[str]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _write(archive: Archive, member: _Member, path: Path) -> None:
    if path.exists():
        raise _refusal(archive, f"has {member.name!r} twice")
    path.parent.mkdir(parents=True, exist_ok=True)
    with member.open() as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, BLOCK)


def _refusal(archive: Archive, reason: str) -> UserError:
    return UserError(f"{archive.file_name} (from {archive.url}) {reason}: it is not unpacked, and deleted")
