"""Arrays that a person gives, checked: images, features, labels; and the .npz files that hold them."""

import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from openworld.core.errors import UserError
from openworld.data.decode import on_white


def read_archive(path: Path, wanted: Collection[str]) -> tuple[dict[str, np.ndarray], str]:
    """Those of the wanted arrays that an .npz holds, and all its names, for people; what could run code is refused."""
    with path.open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise UserError(f"{path}: damaged, or not an .npz file; write it with numpy.savez")
        file.seek(0)
        try:
            archive = np.load(file, allow_pickle=False)
            arrays = {name: archive[name] for name in archive.files if name in wanted}
            return arrays, ", ".join(archive.files) or "nothing"
        except MemoryError:
            raise UserError(f"{path}: too large for the memory of this machine; give the images as files") from None
        except Exception as error:  # the parsers of zip and .npy raise whatever they stumble over
            if "allow_pickle" in str(error):
                raise UserError(f"{path}: an array of Python objects could run code; save numbers or strings") from None
            raise UserError(f"{path}: damaged ({error}); write it again") from None


def checked_samples(where: str, kind: str, samples: Any) -> np.ndarray:
    """`kind` is images or features."""
    return (_checked_features if kind == "features" else _checked_images)(where, np.asarray(samples))


def _checked_images(where: str, images: np.ndarray) -> np.ndarray:
    if images.dtype != np.uint8:
        raise UserError(f"{where}: images are {images.dtype}; they must be uint8, from 0 to 255")
    pixels = images[..., None] if images.ndim == 3 else images
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3, 4) or not pixels.size:
        wanted = "(N, H, W) or (N, H, W, C), channels last, with C 1, 3 or 4, and none of them 0"
        raise UserError(f"{where}: images have the shape {images.shape}; it must be {wanted}")
    return np.stack([on_white(image) for image in pixels]) if pixels.shape[-1] == 4 else pixels


def _checked_features(where: str, features: np.ndarray) -> np.ndarray:
    if features.dtype.kind not in "fiu" or features.ndim != 2 or not features.size:
        found = f"{features.dtype} of the shape {features.shape}"
        raise UserError(f"{where}: features are {found}; they must be numbers of the shape (N, D)")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is found below
        features = features.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise UserError(f"{where}: features hold NaN or an infinite number, first in row {bad[0]}; remove such rows")
    return features


def is_unlabelled(label: str) -> bool:
    """-1 is what numpy makes of a number among strings, and data frames and files of one among their cells."""
    return label.strip() in ("", "-1")


def checked_labels(where: str, labels: np.ndarray, count: int) -> list[str | int | None]:
    if labels.dtype == object and all(isinstance(label, str) for label in labels):  # as pandas keeps strings
        labels = labels.astype(str)
    if labels.dtype.kind not in "iuU" or labels.ndim != 1:
        wanted = "(N,) whole numbers, -1 for unlabelled, or strings, '' for unlabelled"
        raise UserError(f"{where}: labels are {labels.dtype} of the shape {labels.shape}; they must be {wanted}")
    if len(labels) != count:
        raise UserError(f"{where}: there are {count} samples, but {len(labels)} labels; there must be one for each")
    if labels.dtype.kind == "U":
        return [None if is_unlabelled(label) else label for label in labels.tolist()]
    if labels.min() < -1:
        raise UserError(f"{where}: a label is {labels.min()}; only -1 (unlabelled) may be negative")
    return [None if label == -1 else label for label in labels.tolist()]
