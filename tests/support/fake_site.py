"""A small web server that can misbehave, and archives to put on it."""

import io
import tarfile
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np

from openworld.data.dataset import Dataset, Files, Part


@dataclass
class Site:
    """The files of the server, its behaviour, and the requests that it got."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    knows_range: bool = True
    sends_length: bool = True
    breaks_after: int | None = None
    """Number of bytes of a body after which the server closes the connection."""
    status: int = 200
    requested_ranges: list[str | None] = field(default_factory=list)
    bytes_sent: int = 0


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self):
        wanted_range = self.headers["Range"]
        self.site.requested_ranges.append(wanted_range)
        if self.site.status != 200:
            return self.send_error(self.site.status)
        body, start = self.site.files[self.path.rsplit("/", 1)[-1]], 0
        if wanted_range and self.site.knows_range:
            start = int(wanted_range.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                return self.send_error(416)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        body = body[start:]
        if self.site.sends_length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: self.site.breaks_after]
        self.site.bytes_sent += len(body)  # count first: a client may look as soon as it has read everything
        self.wfile.write(body)

    def log_message(self, *_args):
        """Print nothing."""


def read_toy(folder: Path) -> Dataset:
    """Read a data set with a class for each line of names.txt, and one image of each class."""
    names = tuple((folder / "names.txt").read_text().split())
    part = Part(Files(folder, tuple(f"images/{name}.jpg" for name in names)), np.arange(len(names)))
    for position in range(len(names)):
        Path(part.content.full_path(position)).read_bytes()
    return Dataset("toy", names, part, part)


TOY = {
    "toy-1/names.txt": b"cat\ndog\n",
    "toy-1/images/cat.jpg": b"c" * 1000,
    "./toy-1/images/dog.jpg": np.random.default_rng(0).bytes(200_000),
    "toy-1/images/deep/cat.jpg": b"too deep",
    "toy-1/README": b"not needed",
    "elsewhere/names.txt": b"not inside",
}


def tar_of(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(folder_info("toy-1"))
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in more:
            tar.addfile(info)
    return packed.getvalue()


def folder_info(name: str) -> tarfile.TarInfo:
    return special_info(name, tarfile.DIRTYPE)


def special_info(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_of(files: dict[str, bytes], modes: dict[str, int] | None = None) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(zipfile.ZipInfo("toy-1/"), b"")
        for name, content in files.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, 0) << 16
            file.writestr(info, content)
    return packed.getvalue()
