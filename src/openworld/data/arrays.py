"""Read and check arrays of images, features and labels, from memory or from an .npz file."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from openworld.core.errors import UserError
from openworld.data.dataset import Dataset
from openworld.data.decode import on_white
from openworld.data.own_shared import LabelledContent, assemble, check_spellings

_NPZ_ARRAYS = ("images", "features", "labels", "test_images", "test_features", "test_labels")


def from_arrays(
    images_or_features: Any, labels: Any, test: Any = None, test_labels: Any = None, name: str = "arrays"
) -> Dataset:
    """Build a `Dataset` from arrays of N samples and N labels.

    If every sample has a label, the set is a benchmark: a split hides labels later.

    Args:
        images_or_features: uint8 images of shape (N, H, W) or (N, H, W, C) with C = 1, 3 or 4, or features (N, D).
        labels: integers, where -1 means unlabelled, or strings, where '' and '-1' mean unlabelled.
        test: optional samples of the test part.
        test_labels: one label for each sample of the test part.
        name: name of the data set, also in error messages.
    """
    kind = "features" if np.ndim(images_or_features) == 2 else "images"
    return _from_arrays(name, name, kind, images_or_features, labels, test, test_labels)


def read_npz(path: Path) -> Dataset:
    """Build a `Dataset` from the arrays of an .npz file."""
    arrays, found = read_archive(path, _NPZ_ARRAYS)
    kinds = {name.removeprefix("test_") for name in arrays} - {"labels"}
    if len(kinds) != 1 or not arrays.keys() >= {*kinds, "labels"}:
        raise UserError(
            f"{path}: the file must contain labels and either images or features (found: {found}); "
            "save it again with these names, and test arrays of the same kind"
        )
    (kind,) = kinds
    parts = (arrays.get(name) for name in (kind, "labels", f"test_{kind}", "test_labels"))
    return _from_arrays(str(path), path.name, kind, *parts)


def read_archive(path: Path, wanted: Collection[str]) -> tuple[dict[str, np.ndarray], str]:
    """Read those of the wanted arrays that an .npz file contains. Refuse pickled objects, which could run code.

    Returns:
        The arrays by name, and a text that lists all names in the file, for error messages.
    """
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise UserError(f"{path}: the file is damaged or not an .npz file; write it with numpy.savez")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in archive.files if name in wanted}
            return arrays, ", ".join(archive.files) or "nothing"
        except MemoryError:
            raise UserError(
                f"{path}: the arrays are too large for the memory of this machine; save the images as files instead"
            ) from None
        except Exception as error:  # the parsers of zip and .npy raise many types of errors on a damaged file
            if "allow_pickle" in str(error):
                raise UserError(
                    f"{path}: an array contains Python objects, and loading them could run code; "
                    "save numbers or strings instead"
                ) from None
            raise UserError(f"{path}: the file is damaged ({error}); write it again with numpy.savez") from None


def _from_arrays(where: str, name: str, kind: str, data: Any, labels: Any, test: Any, test_labels: Any) -> Dataset:
    if (test is None) != (test_labels is None):
        lacking = f"labels but no {kind}" if test is None else f"{kind} but no labels"
        raise UserError(f"{where}: the test part has {lacking}; add them or leave out the test part")
    train = _checked_part(where, kind, data, labels)
    if kind == "features" and not (train[0] != train[0][0]).any():
        raise UserError(
            f"{where}: all features are constant, so they cannot tell classes apart; check how they were made"
        )
    test = (train[0][:0], []) if test is None else _checked_part(f"{where}, test part", kind, test, test_labels)
    if test[0].shape[1:] != train[0].shape[1:]:
        shapes = f"{train[0].shape[1:]} in training and {test[0].shape[1:]} in the test part"
        raise UserError(f"{where}: {kind} have the shape {shapes}; use the same shape in both")
    if None in test[1]:
        raise UserError(
            f"{where}, test part: sample {test[1].index(None)} has no label; add the label or remove the sample"
        )
    labels = [label for label in (*train[1], *test[1]) if label is not None]
    if len(set(map(type, labels))) > 1:
        raise UserError(f"{where}: labels are numbers in one part and strings in the other; use one type in both")
    check_spellings((str(label), where) for label in labels)
    return assemble(where, name, train, [label is not None for label in train[1]], test)


def _checked_part(where: str, kind: str, samples: Any, labels: Any) -> LabelledContent:
    samples = checked_samples(where, kind, samples)
    return samples, checked_labels(where, np.asarray(labels), len(samples))


def checked_samples(where: str, kind: str, samples: Any) -> np.ndarray:
    """Return samples as (N, H, W, 1 or 3) uint8 images or (N, D) float32 features. `kind` says which.

    Raise a UserError that names `where` if the array has another type or shape.
    """
    return (_checked_features if kind == "features" else _checked_images)(where, np.asarray(samples))


def _checked_images(where: str, images: np.ndarray) -> np.ndarray:
    if images.dtype != np.uint8:
        raise UserError(f"{where}: images are {images.dtype}; they must be uint8, with values from 0 to 255")
    pixels = images[..., None] if images.ndim == 3 else images
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3, 4) or not pixels.size:
        wanted = "(N, H, W) or (N, H, W, C) with channels last, C = 1, 3 or 4, and no dimension of size 0"
        raise UserError(f"{where}: images have the shape {images.shape}; it must be {wanted}")
    return np.stack([on_white(image) for image in pixels]) if pixels.shape[-1] == 4 else pixels


def _checked_features(where: str, features: np.ndarray) -> np.ndarray:
    if features.dtype.kind not in "fiu" or features.ndim != 2 or not features.size:
        found = f"{features.dtype} of the shape {features.shape}"
        raise UserError(f"{where}: features are {found}; they must be numbers of the shape (N, D), neither of them 0")
    with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite, and the check below finds it
        features = features.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise UserError(
            f"{where}: features contain NaN, infinity or a value too large for float32, first in row {bad[0]}; "
            "remove such rows"
        )
    return features


def is_unlabelled(label: str) -> bool:
    """Return whether a label in text form means unlabelled.

    '-1' does too: numpy turns the number into this text in an array with strings, as manifests and DataFrames do.
    """
    return label.strip() in ("", "-1")


def checked_labels(where: str, labels: np.ndarray, count: int) -> list[str | int | None]:
    """Return `count` labels, None for unlabelled. Raise a UserError if they have another type, shape or number."""
    if labels.dtype == object and all(isinstance(label, str) for label in labels):  # pandas stores strings as objects
        labels = labels.astype(str)
    if labels.dtype.kind not in "iuU" or labels.ndim != 1:
        wanted = "(N,) integers, with -1 for unlabelled, or (N,) strings, with '' for unlabelled"
        raise UserError(f"{where}: labels are {labels.dtype} of the shape {labels.shape}; they must be {wanted}")
    if len(labels) != count:
        raise UserError(f"{where}: there are {count} samples but {len(labels)} labels; give each sample one label")
    if labels.dtype.kind == "U":
        return [None if is_unlabelled(label) else label for label in labels.tolist()]
    if labels.min() < -1:
        raise UserError(f"{where}: a label is {labels.min()}; the only negative label is -1, for unlabelled")
    return [None if label == -1 else label for label in labels.tolist()]
