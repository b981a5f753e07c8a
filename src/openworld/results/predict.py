"""Predict a class for every given image, also for images that were not in training.

A broken image gets an error message instead of a prediction. It does not stop the others.
"""

import csv
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from openworld.core.errors import UserError
from openworld.data.arrays import checked_samples, read_archive
from openworld.data.decode import SUFFIXES, is_clutter
from openworld.data.loader import resized, to_tensor
from openworld.data.pool import in_pieces
from openworld.data.samples import chunk_size
from openworld.data.worker import decode_files
from openworld.runs.model import Model
from openworld.runs.outputs import top_predictions

FILES_PER_TASK = 32
"""Number of files that a worker decodes in one task."""
BATCH = 256
"""Largest number of samples in a batch."""


@dataclass(frozen=True)
class Prediction:
    """The prediction for one sample, or the reason why there is none."""

    path: str | int
    """Path of the image as it was given, or position of the sample in an .npz file."""
    prediction: str | None = None
    """Predicted class; None if the sample cannot be used."""
    confidence: float | None = None
    """Probability of the predicted class."""
    uncertainty: float | None = None
    """Standard deviation, over random views, of the probability of their most probable class; None without views."""
    runner_up: str | None = None
    """Class with the second highest probability."""
    error: str | None = None
    """Reason why the sample cannot be used."""


Sources = Iterator[tuple[str | int, np.ndarray | str]]
"""Path or position of each sample, with the sample itself or the reason why it cannot be used."""


def predict(model: Model, places: Sequence[Path], num_views: int, workers: int) -> tuple[int, Iterator[Prediction]]:
    """Return the number of samples and an iterator of their predictions.

    Args:
        places: image files, folders and manifests, or one .npz file.
        num_views: number of random views for the uncertainty; 0 for none.
        workers: number of processes that decode images.
    """
    if num_views == 1 or num_views < 0:
        raise UserError(f"--views {num_views}: the uncertainty needs 2 or more views; use 0 for no uncertainty")
    archives = [place for place in places if place.suffix.lower() == ".npz"]
    if archives and len(places) > 1:
        raise UserError(f"{archives[0]}: an .npz file cannot be combined with other files; predict it by itself")
    if archives:
        samples = samples_of_archive(archives[0], model)
        return len(samples), _predict(model, iter(enumerate(samples)), num_views)
    if not model.takes_images:
        raise UserError(f"{places[0]}: the run was trained on features; give an .npz file with the array `features`")
    paths = find_images(places)
    channels, size, _ = model.sample_shape
    decoded = in_pieces(workers, decode_files, paths, FILES_PER_TASK, size, channels)
    return len(paths), _predict(model, zip(paths, decoded, strict=True), num_views)


def _predict(model: Model, samples: Sources, num_views: int) -> Iterator[Prediction]:
    """Yield predictions in the order of the samples, computed in batches."""
    size = min(BATCH, chunk_size(model.sample_shape))
    for batch in iter(lambda: list(itertools.islice(samples, size)), []):
        usable = [sample for _, sample in batch if not isinstance(sample, str)]
        found = iter(_predict_batch(model, torch.from_numpy(np.stack(usable)), num_views) if usable else ())
        for path, sample in batch:
            yield Prediction(path, error=sample) if isinstance(sample, str) else Prediction(path, *next(found))


def _predict_batch(model: Model, samples: Tensor, num_views: int) -> Iterator[tuple]:
    """Yield prediction, confidence, uncertainty and runner-up of each sample."""
    uncertainties = model.uncertainty(samples, num_views).tolist() if num_views else itertools.repeat(None)
    best = top_predictions(model.probabilities(samples), model.classes)
    for top, uncertainty in zip(best, uncertainties, strict=False):
        yield top.prediction, top.confidence, uncertainty, top.runner_up


# Finding the samples --------------------------------------------------------------------------------------------


def find_images(places: Sequence[Path]) -> list[str]:
    """Return the path of each image once, in the order of the places. The images of a folder are sorted."""
    found: dict[str, None] = {}
    for place in places:
        if place.is_dir():
            inside = images_under(place)
            if not inside:
                raise UserError(f"{place}: this folder has no images")
        elif not place.exists():
            raise UserError(f"{place}: no such file or folder")
        else:
            inside = paths_of_manifest(place) if place.suffix.lower() == ".csv" else [str(place)]
        found.update(dict.fromkeys(inside))
    return list(found)


def images_under(folder: Path) -> list[str]:
    """Return the sorted paths of all files under a folder with the suffix of an image. Their content is not checked."""
    return sorted(
        str(path)
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.is_dir()
        and not any(is_clutter(name) for name in path.relative_to(folder).parts)
    )


def paths_of_manifest(manifest: Path) -> list[str]:
    """Return the paths in the column `path`, relative to the manifest's folder. Labels are ignored."""
    with manifest.open(encoding="utf-8-sig", newline="") as file:
        try:
            lines = csv.reader(file)
            header = [column.strip() for column in next(lines, [])]
            if "path" not in header:
                raise UserError(f"{manifest}: the column path is missing (found: {','.join(header) or 'none'})")
            column = header.index("path")
            paths = [str(manifest.parent / line[column]) for line in lines if len(line) > column and line[column]]
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{manifest}: not a CSV file in UTF-8 ({error})") from None
    if not paths:
        raise UserError(f"{manifest}: the manifest names no images")
    return paths


def samples_of_archive(path: Path, model: Model) -> np.ndarray:
    """Return the samples of an .npz file in the shape that the model takes."""
    if not path.exists():
        raise UserError(f"{path}: no such file")
    kind = "images" if model.takes_images else "features"
    arrays, found = read_archive(path, [kind])
    if kind not in arrays:
        raise UserError(f"{path}: the array {kind} is missing; the run was trained on {kind} (found: {found})")
    return fitted(str(path), kind, arrays[kind], model)


def fitted(where: str, kind: str, samples: np.ndarray, model: Model) -> np.ndarray:
    """Return samples in the shape of the training data: images are resized.

    Raise a UserError if the number of channels or features differs.
    """
    checked = checked_samples(where, kind, samples)
    fitting = to_tensor(resized(checked, model.sample_shape[-1] if model.takes_images else None)).numpy()
    if fitting.shape[1:] != model.sample_shape:
        shapes = f"{fitting.shape[1:]}, but the run was trained on {model.sample_shape}"
        raise UserError(f"{where}: {kind} have the shape {shapes}")
    return fitting
