"""Read your own data: a folder, a manifest, an .npz file, arrays or a DataFrame becomes a checked `Dataset`.

This module opens no image, so it lists 200,000 of them in seconds.
"""

from pathlib import Path

from openworld.core.errors import UserError, is_utf8
from openworld.data.arrays import from_arrays, read_npz
from openworld.data.dataset import Dataset
from openworld.data.own_folder import kinds_of, read_data_folder
from openworld.data.own_table import from_frame, read_manifest

__all__ = ["from_arrays", "from_frame", "kinds_of", "read_own"]

_FORMS = "pass a folder with labelled/ and unlabelled/ in it, a manifest (.csv) or an .npz file"


def read_own(path: Path) -> Dataset:
    """Read a data folder, a manifest or an .npz file."""
    if not is_utf8(str(path.absolute())):  # the files of a run are UTF-8 and could not store this path
        raise UserError(f"{str(path)!a}: the name is not valid UTF-8; rename it")
    try:
        if path.is_dir():
            return read_data_folder(path)
        if not path.exists():
            raise UserError(f"{path}: no such file or folder; {_FORMS}")
        if path.suffix.lower() == ".csv":
            return read_manifest(path)
        if path.suffix.lower() == ".npz":
            return read_npz(path)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"{error.filename or path}: cannot be read ({reason}); check this path and its permissions"
        ) from None
    raise UserError(f"{path}: openworld cannot read data from this kind of file; {_FORMS}")
