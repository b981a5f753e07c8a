"""Shared by all forms of user data: rows of image files, class names, links, and the final `Dataset`."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from openworld.core.errors import UserError
from openworld.data.dataset import Dataset, Files, Part

PARTS = ("labelled", "unlabelled", "test")

LabelledContent = tuple[np.ndarray | Files, Sequence[str | int | None]]
"""Samples and one label for each; None means that the class is unknown."""


class Row(NamedTuple):
    """An image file and what the data says about it."""

    place: str
    """Where users find this row, for error messages: a folder, or a line of a manifest."""
    path: str
    label: str | None
    part: str


def from_rows(where: str, name: str, root: Path, rows: list[Row]) -> Dataset:
    """Build a `Dataset` from image files. Their paths are relative to `root`; errors name `where`."""
    check_spellings((row.label, row.place) for row in rows if row.label is not None)
    train, test = ([row for row in rows if (row.part == "test") == is_test] for is_test in (False, True))
    train_part, test_part = (
        (Files(root, tuple(row.path for row in part)), [row.label for row in part]) for part in (train, test)
    )
    return assemble(where, name, train_part, [row.part == "labelled" for row in train], test_part)


def assemble(
    where: str, name: str, train: LabelledContent, is_labelled: Sequence[bool], test: LabelledContent
) -> Dataset:
    """Number the classes and build a `Dataset`. Raise a UserError if fewer than 2 classes have labels.

    Classes with labelled samples come first, in sorted order, then all others. An unknown class (None) becomes -1.
    """
    seen = sorted(set(compress(train[1], is_labelled)))
    if len(seen) < 2:
        found = f"only one class has labelled samples ({seen[0]})" if seen else "no class has labelled samples"
        raise UserError(f"{where}: {found}; label samples of at least 2 classes")
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


def check_spellings(classes: Iterable[tuple[str, str]]) -> None:
    """Raise a UserError if two class names differ only in case, outer spaces or Unicode form, as 'Cat' and 'cat' do.

    Args:
        classes: pairs of a class name and the place where users find it.
    """
    spelling: dict[str, str] = {}
    for name, place in classes:
        normalised = unicodedata.normalize("NFC", name)
        other = spelling.setdefault(normalised.strip().casefold(), name)
        if other != name:
            # Two Unicode forms of one name look the same on screen, so the message shows their code points.
            show = ascii if unicodedata.normalize("NFC", other) == normalised else repr
            raise UserError(
                f"{place}: the class names {show(other)} and {show(name)} differ only in case, outer spaces or Unicode "
                "form; use one spelling, or names that differ more"
            )


def part_name(word: str) -> str:
    """Return the name of a part as this library spells it.

    >>> part_name("Labeled ")
    'labelled'
    """
    return word.strip().casefold().replace("labeled", "labelled")


def check_link(root: Path, path: str) -> None:
    """Raise a UserError unless a symbolic link leads to a file under `root`. Other files are not part of the data."""
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise UserError(f"{path}: this is a link to a folder; replace it with the folder itself")
    if not Path(target).is_relative_to(os.path.realpath(root)):
        raise UserError(f"{path}: this is a link to a file outside {root}; replace it with the file itself")
    if not os.path.isfile(target):
        raise UserError(f"{path}: this is a link to a file that does not exist; remove the link")
