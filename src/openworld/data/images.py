"""Where images come from: a name in, pixels and labels out."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from openworld.config import did_you_mean
from openworld.errors import UserError


@dataclass(frozen=True)
class Images:
    """A part of a data set: N images and their class numbers."""

    pixels: np.ndarray
    """(N, H, W, C) uint8."""
    labels: np.ndarray
    """(N,) int64, counted from 0."""


@dataclass(frozen=True)
class Dataset:
    """A fully labelled set; split.py turns it into an open-world problem."""

    name: str
    class_names: tuple[str, ...]
    train: Images
    test: Images

    def fingerprint(self) -> str:
        """A hash of every pixel and label: two runs on the same fingerprint saw the same data."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            for array in (part.pixels, part.labels.astype("<i8")):
                digest.update(str(array.shape).encode())
                digest.update(np.ascontiguousarray(array))
        return digest.hexdigest()


def load_dataset(name: str) -> Dataset:
    if name not in DATASETS:
        known = ", ".join(DATASETS)
        raise UserError(f"{name}: no such data set{did_you_mean(name, DATASETS)} (there are {known})")
    return DATASETS[name]()


def data_dir() -> Path:
    """The folder that holds the benchmarks: $OPENWORLD_DATA, or a cache folder in the user's home."""
    return Path(os.environ.get("OPENWORLD_DATA") or Path.home() / ".cache" / "openworld")


def digits() -> Dataset:
    """The 1,797 handwritten digits that scikit-learn carries; every fifth of each class is for testing."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pixels = np.round(raw.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = raw.target.astype(np.int64)
    # By class, not by position: the digits lie in the order 0, 1, ... 9, so every fifth image holds two classes.
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[::5]] = True
    return Dataset(
        name="digits",
        class_names=tuple(map(str, range(10))),
        train=Images(pixels[~is_test], labels[~is_test]),
        test=Images(pixels[is_test], labels[is_test]),
    )


def cifar10() -> Dataset:
    """CIFAR-10, binary version (cs.toronto.edu/~kriz/cifar.html): 50,000 + 10,000 images of 32 px."""
    folder = data_dir() / "cifar-10-batches-bin"
    return Dataset(
        name="cifar10",
        class_names=_names(folder / "batches.meta.txt"),
        train=_cifar_records([folder / f"data_batch_{number}.bin" for number in range(1, 6)], label_bytes=1),
        test=_cifar_records([folder / "test_batch.bin"], label_bytes=1),
    )


def cifar100() -> Dataset:
    """CIFAR-100, binary version (cs.toronto.edu/~kriz/cifar.html): 50,000 + 10,000 images of 32 px."""
    folder = data_dir() / "cifar-100-binary"
    return Dataset(
        name="cifar100",
        class_names=_names(folder / "fine_label_names.txt"),
        train=_cifar_records([folder / "train.bin"], label_bytes=2),
        test=_cifar_records([folder / "test.bin"], label_bytes=2),
    )


DATASETS: dict[str, Callable[[], Dataset]] = {"digits": digits, "cifar10": cifar10, "cifar100": cifar100}


def _cifar_records(paths: list[Path], label_bytes: int) -> Images:
    """Records of label bytes (the last is the fine label) followed by 3 x 32 x 32 bytes."""
    rows = np.concatenate([np.frombuffer(_read(path), np.uint8) for path in paths])
    if len(rows) == 0 or len(rows) % (label_bytes + 3072):
        raise UserError(f"{paths[0].parent}: not the binary version of CIFAR (a file has the wrong length)")
    rows = rows.reshape(-1, label_bytes + 3072)
    pixels = rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Images(np.ascontiguousarray(pixels), rows[:, label_bytes - 1].astype(np.int64))


def _names(path: Path) -> tuple[str, ...]:
    return tuple(_read(path).decode().split())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: get CIFAR's binary version (163 MB, cs.toronto.edu/~kriz/cifar.html) and unpack "
            f"it into {path.parent.parent}, or point OPENWORLD_DATA at the folder that holds {path.parent.name}"
        ) from None
