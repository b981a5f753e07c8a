"""Read the benchmarks of the paper, and a small one to try things out.

A reader takes the folder of its benchmark and returns a `Dataset`. It decodes no image files. The order of the classes
is that of their labels or of their sorted folder names, because the paper uses the first half as seen classes. Samples
are sorted by path. For a missing file, a reader raises FileNotFoundError, and `read_folder` turns it into a UserError.
"""

import errno
import hashlib
import io
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from openworld.core.errors import UserError, did_you_mean
from openworld.core.places import default_data_dir
from openworld.data.dataset import Dataset, Files, Part
from openworld.data.sources import SOURCES, Source

Sample = tuple[str, int]
"""An image file (its name, or its path in the folder of the benchmark) and its class number."""


class MissingFile(UserError):
    """A benchmark or one of its files is missing."""


@dataclass(frozen=True)
class Benchmark:
    """How to read a benchmark and where to get it."""

    folder: str
    """Folder of the benchmark, relative to the folder of all benchmarks."""
    read: Callable[[Path], Dataset]
    """Function that reads this folder."""
    source: Source


def read_benchmark(name: str, data_dir: Path) -> Dataset:
    """Read a benchmark from the folder of all benchmarks. If it is missing, the error says how to get it."""
    try:
        return read_folder(name, data_dir / find_benchmark(name).folder)
    except MissingFile as error:
        data_dir_flag = "" if data_dir == default_data_dir() else f" --data-dir {shlex.quote(str(data_dir))}"
        fetch = f"run `openworld data fetch {name}{data_dir_flag}`, or " if BENCHMARKS[name].source.archives else ""
        raise MissingFile(
            f"{error}: {fetch}{how_to_get(name, data_dir)}. If you have it elsewhere, set --data-dir or OPENWORLD_DATA "
            f"to the folder that contains {BENCHMARKS[name].folder}"
        ) from None


def read_folder(name: str, folder: Path) -> Dataset:
    """Read a benchmark from its own folder and check that it is complete."""
    try:
        dataset = find_benchmark(name).read(folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFile(f"{name}: {error.filename} is missing") from None
    except OSError as error:
        raise UserError(f"{name}: {error.filename} cannot be read ({error.strerror}); check this file") from None
    _check_classes(dataset, folder)
    return dataset


def find_benchmark(name: str) -> Benchmark:
    """Return the benchmark of this name, or raise a UserError that lists all names."""
    if name not in BENCHMARKS:
        known = ", ".join(BENCHMARKS)
        raise UserError(f"{name}: no such benchmark{did_you_mean(name, BENCHMARKS)} (choose from {known})")
    return BENCHMARKS[name]


def how_to_get(name: str, data_dir: Path) -> str:
    """Return instructions for getting a benchmark by hand."""
    return find_benchmark(name).source.instructions.format(data_dir=data_dir)


def _check_classes(dataset: Dataset, folder: Path) -> None:
    """Raise a UserError if a label has no class name or a class has no training images."""
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    num_classes = len(dataset.class_names)
    outside = labels[(labels < 0) | (labels >= num_classes)]
    if len(outside):
        raise UserError(
            f"{folder}: a sample has class number {outside[0] + 1}, but the number of classes is {num_classes}; "
            "unpack the benchmark again"
        )
    counts = np.bincount(dataset.train.labels, minlength=num_classes)
    if num_classes == 0 or counts.min() == 0:
        empty = f"class {dataset.class_names[counts.argmin()]!r}" if num_classes else dataset.name
        raise UserError(f"{folder}: {empty} has no training images; unpack the benchmark again")


# Benchmarks stored as arrays.


def _digits(_folder: Path) -> Dataset:
    """Read the 1,797 handwritten digits of scikit-learn. Every fifth image of each class is a test image."""
    from sklearn.datasets import load_digits

    raw = load_digits()
    pixels = np.round(raw.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = raw.target.astype(np.int64)
    # By class, not by position: the digits are in the order 0, 1, ... 9, so every fifth image would be of two classes.
    is_test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        is_test[np.flatnonzero(labels == digit)[::5]] = True
    return Dataset(
        name="digits",
        class_names=tuple(map(str, range(10))),
        train=Part(pixels[~is_test], labels[~is_test]),
        test=Part(pixels[is_test], labels[is_test]),
    )


CIFAR_MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
    "test.bin": "4499cfba6c016c1be1438163640a0898",
}
"""md5 of the files in the published archives of CIFAR-10 and CIFAR-100. No file name is in both."""


def _cifar10(folder: Path) -> Dataset:
    return Dataset(
        name="cifar10",
        class_names=tuple(_lines(folder / "batches.meta.txt")),
        train=_cifar_part([folder / f"data_batch_{number}.bin" for number in range(1, 6)], label_bytes=1),
        test=_cifar_part([folder / "test_batch.bin"], label_bytes=1),
    )


def _cifar100(folder: Path) -> Dataset:
    return Dataset(
        name="cifar100",
        class_names=tuple(_lines(folder / "fine_label_names.txt")),
        train=_cifar_part([folder / "train.bin"], label_bytes=2),
        test=_cifar_part([folder / "test.bin"], label_bytes=2),
    )


def _cifar_part(paths: list[Path], label_bytes: int) -> Part:
    """Read CIFAR's binary files.

    A record has `label_bytes` labels (the last is the fine label), then 1,024 bytes each of red, green and blue.
    """
    files = [np.frombuffer(_checked_bytes(path), np.uint8).reshape(-1, label_bytes + 3072) for path in paths]
    pixels = np.empty((sum(map(len, files)), 1024, 3), np.uint8)
    # Copying one channel at a time is several times faster than one transposing copy of everything.
    for channel in range(3):
        start = label_bytes + 1024 * channel
        np.concatenate([records[:, start : start + 1024] for records in files], out=pixels[:, :, channel])
    labels = np.concatenate([records[:, label_bytes - 1] for records in files]).astype(np.int64)
    return Part(pixels.reshape(-1, 32, 32, 3), labels)


def _checked_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    got, expected = hashlib.md5(content, usedforsecurity=False).hexdigest(), CIFAR_MD5[path.name]
    if got != expected:
        raise UserError(
            f"{path}: the md5 is {got}, not {expected}, so the file is damaged or not from CIFAR's binary version; "
            "delete it and unpack the published archive again"
        )
    return content


# Benchmarks stored as image files.


def _tiny_imagenet(folder: Path) -> Dataset:
    wnids = sorted(_lines(folder / "wnids.txt"))
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    listing, words = folder / "val" / "val_annotations.txt", folder / "words.txt"
    rows = _fields(listing, at_least=2)
    test = [(image, _number(label_of, wnid, listing)) for image, wnid, *_box in rows]
    return Dataset(
        name="tiny-imagenet",
        class_names=_names_of(wnids, _lines(words) if words.is_file() else ()),
        train=_part(folder, _samples_in_folders(folder, [f"train/{wnid}/images" for wnid in wnids])),
        test=_listed_part(folder, "val/images", test),
    )


def _imagenet100(folder: Path) -> Dataset:
    listing = folder / "imagenet100.txt"
    lines = _lines(listing)
    synsets = sorted(line.split()[0] for line in lines)
    for synset, count in Counter(synsets).items():
        if not re.fullmatch(r"n\d{8}", synset):
            raise UserError(f"{listing}: {synset!r} is not a synset; a synset looks like n01558993")
        if count > 1:
            raise UserError(f"{listing}: {synset} is listed {count} times; list each of the 100 synsets once")
    if len(synsets) != 100:
        raise UserError(
            f"{listing}: the list has {len(synsets)} synsets, not 100; "
            "`openworld data fetch imagenet100` says where to get the list"
        )
    return Dataset(
        name="imagenet100",
        class_names=_names_of(synsets, lines),
        train=_part(folder, _samples_in_folders(folder, [f"train/{synset}" for synset in synsets])),
        test=_part(folder, _samples_in_folders(folder, [f"val/{synset}" for synset in synsets])),
    )


def _oxford_pets(folder: Path) -> Dataset:
    train, test = (_pet_samples(folder / "annotations" / name) for name in ("trainval.txt", "test.txt"))
    names = {label: image.rpartition("_")[0].replace("_", " ") for image, label in train}
    return Dataset(
        name="oxford-pets",
        class_names=tuple(names[label] for label in sorted(names)),
        train=_listed_part(folder, "images", train),
        test=_listed_part(folder, "images", test),
    )


def _pet_samples(listing: Path) -> list[Sample]:
    rows = _fields(listing, at_least=2)
    return [(f"{image}.jpg", _whole_number(class_id, listing) - 1) for image, class_id, *_species in rows]


def _aircraft(folder: Path) -> Dataset:
    variants = _lines(folder / "variants.txt")
    label_of = {variant: label for label, variant in enumerate(variants)}

    def samples(part: str) -> list[Sample]:
        listing = folder / f"images_variant_{part}.txt"
        rows = _fields(listing, at_least=2, at_most=2)
        return [(f"{image}.jpg", _number(label_of, variant, listing)) for image, variant in rows]

    return Dataset(
        name="aircraft",
        class_names=tuple(variants),
        train=_listed_part(folder, "images", samples("train") + samples("val")),
        test=_listed_part(folder, "images", samples("test")),
    )


def _stanford_cars(folder: Path) -> Dataset:
    devkit, test_annotations = folder / "devkit", folder / "cars_test_annos_withlabels.mat"
    if not test_annotations.exists():
        test_annotations = devkit / test_annotations.name
    return Dataset(
        name="stanford-cars",
        class_names=_from_mat(devkit / "cars_meta.mat", lambda mat: tuple(map(str, mat["class_names"]))),
        train=_listed_part(folder, "cars_train", _car_samples(devkit / "cars_train_annos.mat")),
        test=_listed_part(folder, "cars_test", _car_samples(test_annotations)),
    )


def _car_samples(annotations: Path) -> list[Sample]:
    def samples(mat: dict[str, Any]) -> list[Sample]:
        return [(str(record["fname"]), int(record["class"]) - 1) for record in np.atleast_1d(mat["annotations"])]

    return _from_mat(annotations, samples)


def _from_mat(path: Path, extract: Callable[[dict[str, Any]], Any]) -> Any:
    from scipy.io import loadmat

    content = path.read_bytes()
    try:
        return extract(loadmat(io.BytesIO(content), squeeze_me=True))
    except Exception as error:  # scipy checks little, so the type of the error depends on where the damage is
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise UserError(
            f"{path}: the file is damaged or not the published one ({reason}); download it again"
        ) from error


def _samples_in_folders(root: Path, folders: list[str]) -> list[Sample]:
    """Return the JPEG files of some folders. The position of a folder in the list is its class number."""
    return [
        (f"{folder}/{name}", label)
        for label, folder in enumerate(folders)
        for name in os.listdir(root / folder)
        if name.endswith(".JPEG") and not name.startswith(".")
    ]


def _listed_part(root: Path, images: str, samples: list[Sample]) -> Part:
    """Build a part from listed files in the folder `images`. List this folder once to check that all of them exist."""
    missing = sorted({name for name, _ in samples}.difference(os.listdir(root / images)))
    if missing:
        more = f" (the first of {len(missing)})" if len(missing) > 1 else ""
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{root / images / missing[0]}{more}")
    return _part(root, [(f"{images}/{name}", label) for name, label in samples])


def _part(root: Path, samples: list[Sample]) -> Part:
    """Build a part from files, sorted by path. Raise a UserError if a file is listed twice."""
    samples = sorted(samples)
    paths = tuple(path for path, _ in samples)
    if len(set(paths)) < len(paths):
        duplicate = next(path for path, count in Counter(paths).items() if count > 1)
        raise UserError(f"{root}: {duplicate} is listed twice; unpack the benchmark again")
    return Part(Files(root, paths), np.array([label for _, label in samples], np.int64))


def _names_of(wnids: list[str], lines: Iterable[str]) -> tuple[str, ...]:
    """Return a class name for each WordNet id: the first name in its line, or the id if it has no line.

    If two ids have the same name, the id follows the name in brackets.
    """
    split_lines = (line.split(maxsplit=1) for line in lines)
    names = {fields[0]: fields[1].split(",")[0].strip() for fields in split_lines if len(fields) == 2}
    chosen = [names.get(wnid, wnid) for wnid in wnids]
    counts = Counter(chosen)
    return tuple(name if counts[name] == 1 else f"{name} ({wnid})" for name, wnid in zip(chosen, wnids, strict=True))


def _lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank, without outer spaces."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{path}: this is not a UTF-8 text file; unpack the benchmark again") from None
    return [line.strip() for line in lines if line.strip()]


def _fields(path: Path, at_least: int, at_most: int = 0) -> list[list[str]]:
    """Split each line at white space. With `at_most`, the last field takes the rest of the line."""
    rows = [line.split(maxsplit=at_most - 1) for line in _lines(path)]
    for row in rows:
        if len(row) < at_least:
            raise UserError(
                f"{path}: the line {' '.join(row)!r} has fewer than {at_least} fields; unpack the benchmark again"
            )
    return rows


def _number(numbers: dict[str, int], name: str, path: Path) -> int:
    if name not in numbers:
        raise UserError(f"{path}: {name!r} is not one of the {len(numbers)} classes; unpack the benchmark again")
    return numbers[name]


def _whole_number(text: str, path: Path) -> int:
    if not text.isdecimal():
        raise UserError(f"{path}: {text!r} is not a class number; unpack the benchmark again")
    return int(text)


BENCHMARKS: dict[str, Benchmark] = {
    "digits": Benchmark("digits", _digits, SOURCES["digits"]),
    "cifar10": Benchmark("cifar-10-batches-bin", _cifar10, SOURCES["cifar10"]),
    "cifar100": Benchmark("cifar-100-binary", _cifar100, SOURCES["cifar100"]),
    "tiny-imagenet": Benchmark("tiny-imagenet-200", _tiny_imagenet, SOURCES["tiny-imagenet"]),
    "oxford-pets": Benchmark("oxford-iiit-pet", _oxford_pets, SOURCES["oxford-pets"]),
    "aircraft": Benchmark("fgvc-aircraft-2013b/data", _aircraft, SOURCES["aircraft"]),
    "stanford-cars": Benchmark("stanford_cars", _stanford_cars, SOURCES["stanford-cars"]),
    "imagenet100": Benchmark("imagenet", _imagenet100, SOURCES["imagenet100"]),
}
