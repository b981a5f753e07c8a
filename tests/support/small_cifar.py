"""Small files in the format of CIFAR."""

import hashlib
from pathlib import Path

import numpy as np

from openworld.data import benchmarks


def write(path: Path, content: str | bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def cifar_records(labels: list[tuple[int, ...]]) -> tuple[bytes, np.ndarray]:
    """Return records in the published format, and the (N, 32, 32, 3) pixels in them."""
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 32, 32, 3), dtype=np.uint8)
    rows = [bytes(label) + image.transpose(2, 0, 1).tobytes() for label, image in zip(labels, pixels, strict=True)]
    return b"".join(rows), pixels


def write_cifar(folder: Path, monkeypatch, **files: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    pixels = {}
    for name, labels in files.items():
        content, pixels[name] = cifar_records(labels)
        write(folder / f"{name}.bin", content)
        monkeypatch.setitem(benchmarks.CIFAR_MD5, f"{name}.bin", hashlib.md5(content).hexdigest())
    return pixels
