"""Download a benchmark and unpack it. Downloads are resumable and checked, and no half-written folder is left.

`fetch` downloads an archive to .downloads/NAME.part, checks its md5, and unpacks it into a temporary folder next to it.
If the benchmark can be read from there, one rename moves it to its final folder. Archives are not trusted: `fetch`
refuses an archive if a member's path could leave the folder, or if a member is not a file or a folder.
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
"""Called with the bytes done, the total number of bytes (None if unknown) and a label such as 'unpacking x.zip'."""

TIMEOUT = 30
"""Seconds to wait for the next bytes from the server."""
BLOCK = 1 << 16
"""Bytes to read at a time."""


class Unreachable(UserError):
    """The server cannot be reached."""


def fetch(name: str, data_dir: Path, progress: Progress) -> Path:
    """Download a benchmark into `data_dir` and return its folder. A benchmark that is already there is not changed."""
    benchmark = find_benchmark(name)
    archives = benchmark.source.archives
    if not archives:
        raise UserError(f"{name}: openworld cannot download this benchmark; {how_to_get(name, data_dir)}")
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
            f"{error.filename or data_dir}: cannot be written ({error.strerror or error}); free disk space or choose "
            "another folder with --data-dir, then run the same command again; downloaded data is kept"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # the folder is not empty if a download can be resumed
            downloads.rmdir()
    return folder


def is_there(name: str, data_dir: Path) -> bool:
    """Return whether a benchmark is in `data_dir`. Raise a UserError if its folder exists but cannot be read."""
    folder = data_dir / find_benchmark(name).folder
    if not folder.exists():
        return False
    try:
        read_folder(name, folder)
    except UserError as error:
        raise UserError(
            f"{folder}: this folder exists but cannot be used ({error}); move it away and run the same command again"
        ) from None
    return True


# Downloading.


def _download(archive: Archive, part: Path, progress: Progress) -> None:
    """Download an archive to the file `part`, and resume where an earlier attempt stopped."""
    digest, done = _digest_of(part)
    if digest.hexdigest() == archive.md5:
        return
    response = _request(archive.url, start=done)
    if response is None:  # the file has at least the size of the archive, but not its content
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
            f"{archive.url}: the connection was lost after {done:,} of {archive.size:,} bytes, which are kept; "
            "run the same command again to resume"
        )
    if digest.hexdigest() != archive.md5:
        part.unlink()
        raise UserError(
            f"{archive.url}: the md5 of the download is {digest.hexdigest()}, not {archive.md5}, so it is damaged "
            "and openworld has deleted it; run the same command again"
        )


def _new_digest() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)


def _digest_of(part: Path) -> tuple["hashlib._Hash", int]:
    """Return the md5 of the bytes downloaded so far, and their number: 0 if there is no such file."""
    digest = _new_digest()
    if not part.exists():
        return digest, 0
    with part.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
        return digest, file.tell()


def _request(url: str, start: int) -> HTTPResponse | None:
    """Request a file from byte `start` on. Return None if the server has no such byte."""
    headers = {"User-Agent": "openworld"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        error.close()
        if error.code == 416 and start:
            return None
        raise UserError(f"{url}: the server returned {error.code} {error.reason}; try again later") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise Unreachable(
            f"{url}: cannot be reached ({reason}); check the network connection and run the same command again"
        ) from None


def _check_size(archive: Archive, done: int, response: HTTPResponse) -> None:
    """Raise a UserError if the size is wrong, before a network's login page overwrites gigabytes of downloaded data."""
    if response.length is not None and done + response.length != archive.size:
        raise UserError(
            f"{archive.url}: the server offers {done + response.length:,} bytes, not {archive.size:,}, so this is not "
            "the published file; check that no proxy or login page intercepts the download"
        )


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    """Yield the bytes of a response until it ends or the connection is lost."""
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
    RuntimeError,  # encrypted, or compressed in a way that Python does not support
)
"""Errors that the libraries raise for a damaged archive."""
UNSAFE_NAME = re.compile(r"/|[A-Za-z]:|.*[\\\0]|(.*/)?\.\.(/|$)", re.DOTALL)


@dataclass(frozen=True)
class _Member:
    """A member of a zip or tar archive."""

    name: str
    is_file: bool
    is_folder: bool
    size: int
    open: Callable[[], IO[bytes]]


def _install(name: str, parts: list[Path], unpacked: Path, folder: Path, progress: Progress) -> None:
    """Unpack all archives into `unpacked`, and rename it to `folder` if the benchmark can be read from it."""
    shutil.rmtree(unpacked, ignore_errors=True)  # left by an attempt that was killed
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
        raise UserError(
            f"{name}: the downloaded files cannot be read ({error}); the archives are kept for inspection: {kept}"
        ) from None


def _unpack(archive: Archive, part: Path, unpacked: Path, progress: Progress) -> None:
    """Write the wanted files of an archive into `unpacked`. Delete the archive if it is refused."""
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
                kind = stat.S_IFMT(info.external_attr >> 16)  # 0: packed on a system without these bits
                is_file = not info.is_dir() and kind in (0, stat.S_IFREG)
                is_folder = info.is_dir() and kind in (0, stat.S_IFDIR)
                yield _Member(info.filename, is_file, is_folder, info.file_size, partial(packed.open, info))
    else:
        with tarfile.open(fileobj=file, mode="r:gz") as packed:
            for info in packed:
                yield _Member(info.name, info.isreg(), info.isdir(), info.size, partial(packed.extractfile, info))


def _check_member(archive: Archive, member: _Member) -> None:
    """Raise a UserError if a member is unsafe to unpack."""
    if UNSAFE_NAME.match(member.name):
        raise _refusal(archive, f"contains the unsafe path {member.name!r}")
    if not (member.is_file or member.is_folder):
        raise _refusal(archive, f"contains a link or a device, {member.name!r}")
    if member.size < 0:
        raise _refusal(archive, f"gives a negative size for {member.name!r}")


def _wanted_path(archive: Archive, name: str) -> PurePosixPath | None:
    """Return the path of a member in the folder of the benchmark, or None if the member is not needed."""
    path = PurePosixPath(name)
    if not path.is_relative_to(archive.inside):
        return None
    path = path.relative_to(archive.inside)
    return path if any(_matches(path.parts, pattern.split("/")) for pattern in archive.wanted) else None


def _matches(parts: tuple[str, ...], patterns: list[str]) -> bool:
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _write(archive: Archive, member: _Member, path: Path) -> None:
    if path.exists():
        raise _refusal(archive, f"contains {member.name!r} twice")
    path.parent.mkdir(parents=True, exist_ok=True)
    with member.open() as source, path.open("xb") as target:
        shutil.copyfileobj(source, target, BLOCK)


def _refusal(archive: Archive, reason: str) -> UserError:
    return UserError(
        f"{archive.file_name} (from {archive.url}) {reason}; openworld did not install it and has deleted it. Do not "
        "unpack it by hand"
    )
