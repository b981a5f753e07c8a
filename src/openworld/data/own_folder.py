"""Read a data folder: labelled/<class>/, unlabelled/ and optionally test/<class>/."""

import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from openworld.core.errors import UserError, is_utf8
from openworld.data.dataset import Dataset
from openworld.data.decode import SUFFIXES, is_clutter
from openworld.data.own_shared import PARTS, Row, check_link, from_rows, part_name

_LAYOUT = (
    "a data folder needs labelled/<class>/ with the labelled images of each class, unlabelled/ with all other images, "
    "and optionally test/<class>/"
)


def read_data_folder(root: Path) -> Dataset:
    """List the images of a data folder and check its layout."""
    parts = _part_folders(root)
    rows = list(_class_rows(root, parts["labelled"], "labelled"))
    if "unlabelled" not in parts:
        raise UserError(
            f"{root}: the folder unlabelled/ is missing; {_LAYOUT}. "
            "If all your images are labelled, use a manifest (.csv) or an .npz file instead"
        )
    unlabelled = images_under(root, parts["unlabelled"])
    if not unlabelled:
        raise _no_images(root, parts["unlabelled"], "put your unlabelled images there")
    rows += [Row(str(root), path, None, "unlabelled") for path in unlabelled]
    if "test" in parts:
        rows += _class_rows(root, parts["test"], "test")
    dataset = from_rows(str(root), root.resolve().name, root, rows)
    return replace(dataset, left_out=tuple(path for part in parts.values() for path in _others_under(root, part)))


def _part_folders(root: Path) -> dict[str, str]:
    """Return the folder name of each part that exists, as users spelt it. American spelling is allowed."""
    entries = sorted(_scan(root, ""), key=lambda entry: entry.name)
    if not entries:
        raise UserError(f"{root}: the folder is empty; {_LAYOUT}")
    parts: dict[str, str] = {}
    for entry in entries:
        name = part_name(entry.name)
        if name not in PARTS or not entry.is_dir():
            continue
        if name in parts:
            raise UserError(f"{root}: {parts[name]}/ and {entry.name}/ are the same part; merge them into one folder")
        if entry.is_symlink():
            check_link(root, entry.path)
        parts[name] = entry.name
    if "labelled" not in parts:
        raise UserError(f"{root}: the folder labelled/ is missing; {_LAYOUT}")
    return parts


def _class_rows(root: Path, folder: str, part: str) -> Iterator[Row]:
    """Yield the images of a part that has one folder for each class, in sorted order of the classes."""
    classes = []
    for entry in _scan(root, folder):
        if entry.is_symlink():
            check_link(root, entry.path)
        if entry.is_dir():
            classes.append(entry.name)
        elif entry.is_file() and is_image(entry.name):
            raise UserError(
                f"{entry.path}: this image is directly in {folder}/; move it into a subfolder named after its class"
            )
    if not classes:
        raise UserError(
            f"{root}/{folder}: this folder has no class folders; make one for each class, named after the class"
        )
    for name in sorted(classes):
        paths = images_under(root, f"{folder}/{name}")
        if not paths:
            raise _no_images(root, f"{folder}/{name}", "add images or remove the folder")
        yield from (Row(str(root), path, name, part) for path in paths)


def images_under(root: Path, folder: str) -> list[str]:
    """Return the sorted paths, relative to `root`, of all images in a folder and its subfolders."""
    found = sorted(path for path in _files_under(root, folder) if is_image(path))
    for path in found:
        if not is_utf8(path):
            raise UserError(f"{root}: the file name {path!a} is not valid UTF-8; rename the file")
    return found


def _others_under(root: Path, folder: str) -> list[str]:
    """Return the sorted paths, relative to `root`, of all files that are not images by their names."""
    return sorted(path for path in _files_under(root, folder) if not is_image(path))


def _no_images(root: Path, folder: str, advice: str) -> UserError:
    others = _others_under(root, folder)
    found = f" ({kinds_of(others)}; images end in {', '.join(sorted(SUFFIXES))})" if others else ""
    return UserError(f"{root}/{folder}: there are no images in this folder{found}; {advice}")


def _files_under(root: Path, folder: str) -> Iterator[str]:
    folders = [folder]
    while folders:
        current = folders.pop()
        for entry in _scan(root, current):
            if entry.is_symlink():
                check_link(root, entry.path)
            if entry.is_dir():
                folders.append(f"{current}/{entry.name}")
            elif entry.is_file():
                yield f"{current}/{entry.name}"


def _scan(root: Path, folder: str) -> list[os.DirEntry]:
    """List a folder without the files that file managers leave there."""
    with os.scandir(f"{root}/{folder}") as entries:
        return [entry for entry in entries if not is_clutter(entry.name)]


def is_image(path: str) -> bool:
    """Return whether a file is an image by its extension. Only decoding shows whether its content is one."""
    return posixpath.splitext(path)[1].lower() in SUFFIXES


def kinds_of(paths: Iterable[str]) -> str:
    """Count by extension the files that openworld does not read as images.

    >>> kinds_of(["a/1.cr2", "a/2.CR2", "notes"])
    '3 files of other kinds: 2 .cr2, 1 without an extension'
    """
    extensions = Counter(posixpath.splitext(path)[1].lower() or "without an extension" for path in paths)
    counted = ", ".join(
        f"{count:,} {extension.encode(errors='replace').decode()}" for extension, count in extensions.most_common()
    )
    return f"{extensions.total():,} file{'s' * (extensions.total() > 1)} of other kinds: {counted}"
