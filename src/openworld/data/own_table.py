"""Read a manifest (.csv) or a DataFrame: one row for each image, with its path, label and split."""

import csv
import os
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openworld.core.errors import UserError, did_you_mean
from openworld.data.arrays import is_unlabelled
from openworld.data.dataset import Dataset
from openworld.data.own_shared import PARTS, Row, check_link, from_rows, part_name

_COLUMNS = ("path", "label", "split")


def read_manifest(path: Path) -> Dataset:
    """Read a CSV file. Paths in it are relative to the folder of the file."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        try:
            header = [column.strip() for column in next(reader, [])]
            lines = [(f"{path}, line {reader.line_num}", line) for line in reader if line]
        except UnicodeDecodeError:
            raise UserError(f"{path}: this manifest is not UTF-8 text; save it as CSV in UTF-8") from None
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: not valid CSV ({error}); correct this line") from None
    return _from_table(str(path), path.name, path.parent, header, lines)


def from_frame(frame: Any, root: Path | str = ".") -> Dataset:
    """Read a DataFrame with the columns of a manifest: path, label and optionally split.

    Paths are relative to `root`. A row with a missing label is unlabelled.
    """
    root = Path(root)
    header = [column for column in frame.columns if column in _COLUMNS]
    cells = zip(*([_cell_text(value) for value in frame[column]] for column in header), strict=True)
    lines = [(f"the data frame, row {number}", line) for number, line in enumerate(cells)]
    return _from_table("the data frame", root.resolve().name, root, header, lines)


def _cell_text(value: Any) -> str:
    """Return a cell of a DataFrame as a manifest would write it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # pandas turns a column of integers into floats when some are missing
    text = str(value)
    return text if isinstance(value, str) or text not in ("nan", "None", "<NA>", "NaT") else ""


def _from_table(
    where: str, name: str, root: Path, header: Sequence[str], lines: list[tuple[str, Sequence[str]]]
) -> Dataset:
    """Build a `Dataset` from lines of cells. Each line comes with its place for error messages."""
    for column in ("path", "label"):
        if column not in header:
            wanted = f"the columns must be path,label and optionally split (found: {','.join(header) or 'none'})"
            raise UserError(f"{where}: the column {column} is missing; {wanted}")
    if not lines:
        raise UserError(f"{where}: there are no rows; add one row for each image")
    root_files, rows, place_of = _RootFiles(root), [], {}
    for place, line in lines:
        cells = dict.fromkeys(_COLUMNS, "") | dict(zip(header, line, strict=False))  # a short line ends in empty cells
        path, label = posixpath.normpath(cells["path"]), None if is_unlabelled(cells["label"]) else cells["label"]
        if path == ".":
            raise UserError(f"{place}: the path is empty; write the path of an image file")
        root_files.check(path, place)
        if path in place_of:
            raise UserError(f"{place}: {path} is a duplicate of {place_of[path]}; remove one of the two rows")
        place_of[path] = place
        rows.append(Row(place, path, label, _part_of(cells["split"], label, place)))
    return from_rows(where, name, root, rows)


def _part_of(split: str, label: str | None, place: str) -> str:
    """Return the part that a row belongs to. The split `train` (or empty) means labelled or unlabelled."""
    part = part_name(split) or "train"
    if part not in ("train", *PARTS):
        wanted = f"train, {', '.join(PARTS)} or empty{did_you_mean(part, ('train', *PARTS))}"
        raise UserError(f"{place}: the split is {split!r}; it must be {wanted}")
    if part in ("labelled", "test") and label is None:
        raise UserError(f"{place}: the split is {part}, but the label is empty; add the label or change the split")
    return ("unlabelled" if label is None else "labelled") if part == "train" else part


class _RootFiles:
    """The files under a root folder. Each folder is listed once, which is faster than a check of every file."""

    def __init__(self, root: Path):
        self.root = root
        self.folders: dict[str, dict[str, os.DirEntry]] = {}

    def check(self, path: str, place: str) -> None:
        """Raise a UserError unless a normalised path is a file under the root."""
        if path.startswith(("/", "../")) or path == "..":
            raise UserError(f"{place}: {path} is outside {self.root}; use a path inside that folder, relative to it")
        folder, name = posixpath.split(path)
        if folder not in self.folders:
            self.folders[folder] = self._list(folder, place)
        entry = self.folders[folder].get(name)
        if entry is None:
            advice = "write paths with forward slashes" if "\\" in path else "correct the path or remove the row"
            raise UserError(f"{place}: there is no file {path} in {self.root}; {advice}")
        if entry.is_symlink():
            check_link(self.root, entry.path)

    def _list(self, folder: str, place: str) -> dict[str, os.DirEntry]:
        full = self.root / folder
        if not full.is_dir():
            return {}
        if not Path(os.path.realpath(full)).is_relative_to(os.path.realpath(self.root)):
            raise UserError(
                f"{place}: a link in the path {folder} leads outside {self.root}; "
                "replace the link with the folder itself"
            )
        with os.scandir(full) as entries:
            return {entry.name: entry for entry in entries if entry.is_symlink() or entry.is_file()}
