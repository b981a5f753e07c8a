"""A person's own data: a folder, a manifest, an .npz file, arrays or a data frame, checked and made a `Dataset`.

No image is opened here: 200,000 of them are listed in seconds.
"""

import csv
import os
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from openworld.core.errors import UserError, did_you_mean, is_utf8
from openworld.data.arrays import checked_labels, checked_samples, is_unlabelled, read_archive
from openworld.data.dataset import Dataset, Files, Part
from openworld.data.decode import SUFFIXES, is_clutter

_FORMS = "own data is a folder with labelled/ and unlabelled/, a manifest (.csv), or arrays (.npz)"
_LAYOUT = (
    "a data folder has labelled/<class>/ with images of each known class, unlabelled/ with all other images, "
    "and perhaps test/<class>/"
)
_PARTS = ("labelled", "unlabelled", "test")
_COLUMNS = ("path", "label", "split")
_ARRAYS = ("images", "features", "labels", "test_images", "test_features", "test_labels")

_LabelledContent = tuple[np.ndarray | Files, Sequence[str | int | None]]


def read_own(path: Path) -> Dataset:
    """Whatever a person points at."""
    if not is_utf8(str(path.absolute())):  # it could not be written down
        raise UserError(f"{str(path)!a}: the name is not valid UTF-8; rename it")
    try:
        if path.is_dir():
            return _read_folder(path)
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder; {_FORMS}")
        if path.suffix.lower() == ".csv":
            return _read_manifest(path)
        if path.suffix.lower() == ".npz":
            return _read_npz(path)
    except OSError as error:
        raise UserError(f"{error.filename or path}: cannot be read ({error.strerror or error})") from None
    raise UserError(f"{path}: not a form of data that can be read; {_FORMS}")


def from_frame(frame: Any, root: Path | str = ".") -> Dataset:
    """A data frame with a manifest's columns, its paths relative to the root; a missing label is unlabelled."""
    root = Path(root)
    header = [column for column in frame.columns if column in _COLUMNS]
    cells = zip(*([_cell_text(value) for value in frame[column]] for column in header), strict=True)
    lines = [(f"the data frame, row {number}", line) for number, line in enumerate(cells)]
    return _from_table("the data frame", root.resolve().name, root, header, lines)


def from_arrays(
    images_or_features: Any, labels: Any, test: Any = None, test_labels: Any = None, name: str = "arrays"
) -> Dataset:
    """(N, H, W) or (N, H, W, 1 | 3 | 4) uint8 images or (N, D) features, and N labels: -1 or '' is unlabelled.

    Where every sample has a label the set is a benchmark, whose labels are for a split to hide.
    """
    kind = "features" if np.ndim(images_or_features) == 2 else "images"
    return _from_arrays(name, name, kind, images_or_features, labels, test, test_labels)


# What all forms share


def _assemble(
    where: str, name: str, train: _LabelledContent, is_labelled: Sequence[bool], test: _LabelledContent
) -> Dataset:
    """From samples with their labels, None where nobody knows, to numbered classes."""
    seen = sorted(set(compress(train[1], is_labelled)))
    if len(seen) < 2:
        found = f"only one labelled class ({seen[0]})" if seen else "no labelled class"
        raise UserError(f"{where}: there is {found}; at least 2 are needed")
    classes = (*seen, *sorted({*train[1], *test[1]} - {None, *seen}))
    number = {None: -1, **{label: position for position, label in enumerate(classes)}}
    train_part, test_part = (
        Part(content, np.array([number[label] for label in labels], np.int64)) for content, labels in (train, test)
    )
    return Dataset(
        name=name,
        class_names=tuple(map(str, classes)),
        train=train_part,
        test=test_part if len(test_part) else None,
        is_labelled=None if all(is_labelled) else np.array(is_labelled, bool),
    )


def _check_spellings(classes: Iterable[tuple[str, str]]) -> None:
    """Of class names, each with its place: 'Cat' and 'cat' are one class to whoever wrote them."""
    spelling: dict[str, str] = {}
    for name, place in classes:
        plain = unicodedata.normalize("NFC", name)
        other = spelling.setdefault(plain.strip().casefold(), name)
        if other != name:
            show = ascii if unicodedata.normalize("NFC", other) == plain else repr  # what looks alike is spelt out
            raise UserError(f"{place}: the classes {show(other)} and {show(name)} differ only in spelling; choose one")


class _Row(NamedTuple):
    """An image file, and where a person finds what is said of it."""

    place: str
    path: str
    label: str | None
    part: str


def _from_rows(where: str, name: str, root: Path, rows: list[_Row]) -> Dataset:
    _check_spellings((row.label, row.place) for row in rows if row.label is not None)
    train, test = ([row for row in rows if (row.part == "test") == is_test] for is_test in (False, True))
    train_part, test_part = (
        (Files(root, tuple(row.path for row in part)), [row.label for row in part]) for part in (train, test)
    )
    return _assemble(where, name, train_part, [row.part == "labelled" for row in train], test_part)


def _part_name(word: str) -> str:
    """The name of a part as this library spells it."""
    return word.strip().casefold().replace("labeled", "labelled")


def _check_link(root: Path, path: str) -> None:
    """A link may lead to a file under the same root: what lies outside is not part of the data."""
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise UserError(f"{path}: a link to a folder; put the folder itself there")
    if not Path(target).is_relative_to(os.path.realpath(root)):
        raise UserError(f"{path}: a link to a file outside {root}; put the file itself there")
    if not os.path.isfile(target):
        raise UserError(f"{path}: a link to nothing; remove it")


# The folder


def _read_folder(root: Path) -> Dataset:
    parts = _part_folders(root)
    rows = list(_class_rows(root, parts["labelled"], "labelled"))
    if "unlabelled" not in parts:
        raise UserError(
            f"{root}: there is no unlabelled/ folder in it; {_LAYOUT}. "
            "A set whose images are all labelled can be given as a manifest (.csv) or .npz"
        )
    unlabelled = images_under(root, parts["unlabelled"])
    if not unlabelled:
        raise UserError(f"{_no_images(root, parts['unlabelled'])}; put those there that have no label")
    rows += [_Row(str(root), path, None, "unlabelled") for path in unlabelled]
    if "test" in parts:
        rows += _class_rows(root, parts["test"], "test")
    dataset = _from_rows(str(root), root.resolve().name, root, rows)
    return replace(dataset, left_out=tuple(path for part in parts.values() for path in _others_under(root, part)))


def _part_folders(root: Path) -> dict[str, str]:
    """The folder of each part that is there, as it is spelt: the American way is as good."""
    entries = sorted(_scan(root, ""), key=lambda entry: entry.name)
    if not entries:
        raise UserError(f"{root}: the folder is empty; {_LAYOUT}")
    parts: dict[str, str] = {}
    for entry in entries:
        name = _part_name(entry.name)
        if name not in _PARTS or not entry.is_dir():
            continue
        if name in parts:
            raise UserError(f"{root}: {parts[name]}/ and {entry.name}/ are the same part; put them together")
        if entry.is_symlink():
            _check_link(root, entry.path)
        parts[name] = entry.name
    if "labelled" not in parts:
        raise UserError(f"{root}: there is no labelled/ folder in it; {_LAYOUT}")
    return parts


def _class_rows(root: Path, folder: str, part: str) -> Iterator[_Row]:
    """The images of a part whose folders are named after classes, classes in order."""
    classes = []
    for entry in _scan(root, folder):
        if entry.is_symlink():
            _check_link(root, entry.path)
        if entry.is_dir():
            classes.append(entry.name)
        elif entry.is_file() and is_image(entry.name):
            raise UserError(f"{entry.path}: lies directly in {folder}/; put it into a folder named after its class")
    if not classes:
        raise UserError(f"{root}/{folder}: there is no class in it; make a folder for each, named after it")
    for name in sorted(classes):
        paths = images_under(root, f"{folder}/{name}")
        if not paths:
            raise UserError(f"{_no_images(root, f'{folder}/{name}')}; add some or remove the folder")
        yield from (_Row(str(root), path, name, part) for path in paths)


def images_under(root: Path, folder: str) -> list[str]:
    """Relative to the root, sorted."""
    found = sorted(path for path in _files_under(root, folder) if is_image(path))
    for path in found:
        if not is_utf8(path):
            raise UserError(f"{root}: the file name {path!a} is not valid UTF-8; rename the file")
    return found


def _others_under(root: Path, folder: str) -> list[str]:
    """The files that are not taken for images."""
    return sorted(path for path in _files_under(root, folder) if not is_image(path))


def _no_images(root: Path, folder: str) -> str:
    others = _others_under(root, folder)
    return f"{root}/{folder}: there are no images in it{f' ({kinds_of(others)})' if others else ''}"


def _files_under(root: Path, folder: str) -> Iterator[str]:
    waiting = [folder]
    while waiting:
        inner = waiting.pop()
        for entry in _scan(root, inner):
            if entry.is_symlink():
                _check_link(root, entry.path)
            if entry.is_dir():
                waiting.append(f"{inner}/{entry.name}")
            elif entry.is_file():
                yield f"{inner}/{entry.name}"


def _scan(root: Path, folder: str) -> list[os.DirEntry]:
    """What is in a folder, without what file managers leave there."""
    with os.scandir(f"{root}/{folder}") as entries:
        return [entry for entry in entries if not is_clutter(entry.name)]


def is_image(path: str) -> bool:
    """By its name: what is in it is looked at when it is read."""
    return posixpath.splitext(path)[1].lower() in SUFFIXES


def kinds_of(paths: Iterable[str]) -> str:
    """What a person has to know of files that are not taken for images.

    >>> kinds_of(["a/1.heic", "a/2.HEIC", "notes"])
    '3 files of other kinds: 2 .heic, 1 without an ending'
    """
    endings = Counter(posixpath.splitext(path)[1].lower() or "without an ending" for path in paths)
    counted = ", ".join(
        f"{count:,} {ending.encode(errors='replace').decode()}" for ending, count in endings.most_common()
    )
    return f"{endings.total():,} file{'s' * (endings.total() > 1)} of other kinds: {counted}"


# The manifest and the data frame


def _read_manifest(path: Path) -> Dataset:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            header = [column.strip() for column in next(reader, [])]
            lines = [(f"{path}, line {reader.line_num}", line) for line in reader if line]
        except UnicodeDecodeError:
            raise UserError(f"{path}: not UTF-8 text; save the manifest as CSV in UTF-8") from None
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: not readable as CSV ({error})") from None
    return _from_table(str(path), path.name, path.parent, header, lines)


def _from_table(
    where: str, name: str, root: Path, header: Sequence[str], lines: list[tuple[str, Sequence[str]]]
) -> Dataset:
    """From lines of text, each with its place."""
    for column in ("path", "label"):
        if column not in header:
            wanted = f"the columns must be path,label and perhaps split (found: {','.join(header) or 'none'})"
            raise UserError(f"{where}: there is no column {column}; {wanted}")
    if not lines:
        raise UserError(f"{where}: there are no rows in it; it needs one for each image")
    root_files, rows, place_of = _FilesUnder(root), [], {}
    for place, line in lines:
        cells = dict.fromkeys(_COLUMNS, "") | dict(zip(header, line, strict=False))  # a short line ends in empty cells
        path, label = posixpath.normpath(cells["path"]), None if is_unlabelled(cells["label"]) else cells["label"]
        if path == ".":
            raise UserError(f"{place}: the path is empty; name an image file")
        root_files.check(path, place)
        if path in place_of:
            raise UserError(f"{place}: {path} is there already, at {place_of[path]}; remove one of the two")
        place_of[path] = place
        rows.append(_Row(place, path, label, _part_of(cells["split"], label, place)))
    return _from_rows(where, name, root, rows)


def _part_of(split: str, label: str | None, place: str) -> str:
    part = _part_name(split) or "train"
    if part not in ("train", *_PARTS):
        wanted = f"train, {', '.join(_PARTS)} or empty{did_you_mean(part, ('train', *_PARTS))}"
        raise UserError(f"{place}: the split is {split!r}; it must be {wanted}")
    if part in ("labelled", "test") and label is None:
        raise UserError(f"{place}: the split is {part}, but there is no label; add it")
    return ("unlabelled" if label is None else "labelled") if part == "train" else part


class _FilesUnder:
    """Which files there are under a root; each folder is listed once, so that no file need be asked for."""

    def __init__(self, root: Path):
        self.root = root
        self.folders: dict[str, dict[str, os.DirEntry]] = {}

    def check(self, path: str, place: str) -> None:
        """Of a normalised path: that it is a file, and under the root."""
        if path.startswith(("/", "../")) or path == "..":
            raise UserError(f"{place}: {path} leaves {self.root}; paths must be relative to that folder and stay in it")
        folder, name = posixpath.split(path)
        if folder not in self.folders:
            self.folders[folder] = self._list(folder, place)
        entry = self.folders[folder].get(name)
        if entry is None:
            hint = "; write paths with forward slashes" if "\\" in path else "; correct the path or remove the row"
            raise UserError(f"{place}: there is no file {path} in {self.root}{hint}")
        if entry.is_symlink():
            _check_link(self.root, entry.path)

    def _list(self, folder: str, place: str) -> dict[str, os.DirEntry]:
        full = self.root / folder
        if not full.is_dir():
            return {}
        if not Path(os.path.realpath(full)).is_relative_to(os.path.realpath(self.root)):
            raise UserError(f"{place}: {folder} leaves {self.root} by a link; put the folder itself there")
        with os.scandir(full) as entries:
            return {entry.name: entry for entry in entries if entry.is_symlink() or entry.is_file()}


def _cell_text(value: Any) -> str:
    """A cell of a data frame as a manifest would have it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # a column of integers becomes one of floats when some are missing
    text = str(value)
    return text if isinstance(value, str) or text not in ("nan", "None", "<NA>", "NaT") else ""


# The .npz and arrays


def _read_npz(path: Path) -> Dataset:
    arrays, found = read_archive(path, _ARRAYS)
    kinds = {name.removeprefix("test_") for name in arrays} - {"labels"}
    if len(kinds) != 1 or not arrays.keys() >= {*kinds, "labels"}:
        raise UserError(f"{path}: must hold labels and either images or features (found: {found})")
    (kind,) = kinds
    parts = (arrays.get(name) for name in (kind, "labels", f"test_{kind}", "test_labels"))
    return _from_arrays(str(path), path.name, kind, *parts)


def _from_arrays(where: str, name: str, kind: str, data: Any, labels: Any, test: Any, test_labels: Any) -> Dataset:
    if (test is None) != (test_labels is None):
        raise UserError(f"{where}: a test part has samples and labels; one of the two is missing")
    train = _checked_part(where, kind, data, labels)
    test = (train[0][:0], []) if test is None else _checked_part(f"{where}, test part", kind, test, test_labels)
    if test[0].shape[1:] != train[0].shape[1:]:
        shapes = f"{train[0].shape[1:]} in training and {test[0].shape[1:]} in the test part"
        raise UserError(f"{where}: {kind} have the shape {shapes}; it must be the same")
    if None in test[1]:
        raise UserError(f"{where}, test part: sample {test[1].index(None)} has no label; add it")
    labels = [label for label in (*train[1], *test[1]) if label is not None]
    if len(set(map(type, labels))) > 1:
        raise UserError(f"{where}: labels are numbers in one part and strings in the other; use one of the two")
    _check_spellings((str(label), where) for label in labels)
    return _assemble(where, name, train, [label is not None for label in train[1]], test)


def _checked_part(where: str, kind: str, samples: Any, labels: Any) -> _LabelledContent:
    samples = checked_samples(where, kind, samples)
    return samples, checked_labels(where, np.asarray(labels), len(samples))
