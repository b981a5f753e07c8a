"""A class for every image that a person names, seen by the run or not. A bad image is told of, and not fatal."""

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
"""That a worker decodes in one go."""
BATCH = 256


@dataclass(frozen=True)
class Prediction:
    """What an image is; or why that could not be told."""

    path: str | int
    """Of the image, as it was found; its position in an .npz."""
    prediction: str | None = None
    confidence: float | None = None
    uncertainty: float | None = None
    """Over random views; none where none were asked for."""
    runner_up: str | None = None
    error: str | None = None


Sources = Iterator[tuple[str | int, np.ndarray | str]]
"""Where each sample lies, and the sample itself, or why there is none."""


def predict(model: Model, places: Sequence[Path], num_views: int, workers: int) -> tuple[int, Iterator[Prediction]]:
    """How many samples there are, and what they are: those of image files, folders, manifests, or of one .npz."""
    if num_views == 1 or num_views < 0:
        raise UserError(f"--views {num_views}: it takes 2 or more to see a spread; 0 leaves it out")
    archives = [place for place in places if place.suffix.lower() == ".npz"]
    if archives and len(places) > 1:
        raise UserError(f"{archives[0]}: an .npz has to be predicted by itself")
    if archives:
        samples = samples_of_archive(archives[0], model)
        return len(samples), _predict(model, iter(enumerate(samples)), num_views)
    if not model.takes_images:
        raise UserError(f"{places[0]}: the run was trained on features; give an .npz that holds `features`")
    paths = find_images(places)
    channels, size, _ = model.sample_shape
    decoded = in_pieces(workers, decode_files, paths, FILES_PER_TASK, size, channels)
    return len(paths), _predict(model, zip(paths, decoded, strict=True), num_views)


def _predict(model: Model, samples: Sources, num_views: int) -> Iterator[Prediction]:
    """In the order of the samples, a batch at a time."""
    size = min(BATCH, chunk_size(model.sample_shape))
    for batch in iter(lambda: list(itertools.islice(samples, size)), []):
        sound = [sample for _, sample in batch if not isinstance(sample, str)]
        found = iter(_answers(model, torch.from_numpy(np.stack(sound)), num_views) if sound else ())
        for path, sample in batch:
            yield Prediction(path, error=sample) if isinstance(sample, str) else Prediction(path, *next(found))


def _answers(model: Model, samples: Tensor, num_views: int) -> Iterator[tuple]:
    spreads = model.uncertainty(samples, num_views).tolist() if num_views else itertools.repeat(None)
    for answer, spread in zip(top_predictions(model.probabilities(samples), model.classes), spreads, strict=False):
        yield answer.prediction, answer.confidence, spread, answer.runner_up


# Which samples --------------------------------------------------------------------------------------------------


def find_images(places: Sequence[Path]) -> list[str]:
    """Each image once, in the order of the places; those of a folder sorted."""
    found: dict[str, None] = {}
    for place in places:
        if place.is_dir():
            inside = images_under(place)
            if not inside:
                raise UserError(f"{place}: there are no images in this folder")
        elif not place.exists():
            raise UserError(f"{place}: there is no such file or folder")
        else:
            inside = paths_of_manifest(place) if place.suffix.lower() == ".csv" else [str(place)]
        found.update(dict.fromkeys(inside))
    return list(found)


def images_under(folder: Path) -> list[str]:
    """All that look like images, sorted; whether they are any shows when they are read."""
    return sorted(
        str(path)
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES
        and not path.is_dir()
        and not any(is_clutter(name) for name in path.relative_to(folder).parts)
    )


def paths_of_manifest(manifest: Path) -> list[str]:
    """What its column `path` names, from the manifest's folder; labels, where there are any, are not looked at."""
    with manifest.open(encoding="utf-8-sig", newline="") as file:
        try:
            lines = csv.reader(file)
            header = [column.strip() for column in next(lines, [])]
            if "path" not in header:
                raise UserError(f"{manifest}: there is no column path (found: {','.join(header) or 'none'})")
            column = header.index("path")
            paths = [str(manifest.parent / line[column]) for line in lines if len(line) > column and line[column]]
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{manifest}: not readable as CSV in UTF-8 ({error})") from None
    if not paths:
        raise UserError(f"{manifest}: there are no images in it")
    return paths


def samples_of_archive(path: Path, model: Model) -> np.ndarray:
    """As the model takes them."""
    if not path.exists():
        raise UserError(f"{path}: there is no such file")
    kind = "images" if model.takes_images else "features"
    arrays, found = read_archive(path, [kind])
    if kind not in arrays:
        raise UserError(f"{path}: must hold {kind}, as the run was trained on (found: {found})")
    return fitted(str(path), kind, arrays[kind], model)


def fitted(where: str, kind: str, samples: np.ndarray, model: Model) -> np.ndarray:
    """Images of any size, or features, brought to the shape of those in training; with other channels, refused."""
    checked = checked_samples(where, kind, samples)
    fitting = to_tensor(resized(checked, model.sample_shape[-1] if model.takes_images else None)).numpy()
    if fitting.shape[1:] != model.sample_shape:
        shapes = f"{fitting.shape[1:]}; those in training had {model.sample_shape}"
        raise UserError(f"{where}: {kind} have the shape {shapes}")
    return fitting
