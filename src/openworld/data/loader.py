"""The loader of samples: it surveys image files, refuses or drops broken ones, and resizes images."""

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from openworld.compute.runtime import Runtime
from openworld.core.errors import UserError, named
from openworld.core.places import cache_dir
from openworld.core.progress import CountDisplay
from openworld.data.dataset import Dataset, Files
from openworld.data.decode import resize_images
from openworld.data.row_cache import pixel_cache
from openworld.data.samples import Feeder, InMemory, Samples, Streamed
from openworld.data.survey import Fact, survey
from openworld.data.worker import Item, state_of

LISTED = 5
"""Number of broken files that an error message lists."""

Facts = dict[str, list[Fact]]
"""The facts of each file, by part of the data set. The lists are empty for samples in memory."""


class Loader:
    """Gives the usable samples of a data set by their positions."""

    def __init__(self, dataset: Dataset, size: int | None, on_bad_image: str, runtime: Runtime):
        """Survey the files of the data set.

        Args:
            dataset: The data set.
            size: Side to which images are resized, as squares. None keeps the size of images in memory.
            on_bad_image: "refuse" raises a UserError if a file is broken, "drop" leaves the file out.
            runtime: Device, memory and workers.
        """
        if dataset.has_files and not size:
            raise UserError(f"{dataset.name}: image files may differ in size; choose one with {named('image_size')}")
        self.size, self.runtime = size, runtime
        self.pixel_cache = pixel_cache(cache_dir(), size) if dataset.has_files else None
        facts = self._survey(dataset)
        self.fingerprint = fingerprint(dataset, facts)
        self.dropped = broken_files(dataset, facts)
        """The broken files that were left out, with the reason."""
        if self.dropped and on_bad_image == "refuse":
            raise UserError(refusal(dataset, self.dropped))
        self.dataset, self.facts = without_broken(dataset, facts) if self.dropped else (dataset, facts)
        self.rows = self.pixel_cache.find() if self.pixel_cache else {}
        self.feeder = None
        if self.pixel_cache:
            num_images = sum(map(len, dataset.parts.values()))
            self.feeder = Feeder(size, self.pixel_cache.rows_path, runtime.workers, num_images)

    def samples(self, part: str, positions: Sequence[int], are_read_once: bool = False) -> Samples:
        """Return some samples of a part: on the device if the whole set fits there, otherwise read for each batch.

        Samples that are read only once stay on disk.
        """
        content, device = self.dataset.parts[part].content, self.runtime.device
        fits = self._num_bytes() <= self.runtime.memory and not are_read_once
        if not isinstance(content, Files):
            chosen = to_tensor(resized(content[np.asarray(positions, dtype=np.int64)], self.size))
            return InMemory(chosen.to(device) if fits else chosen, device)
        items = []
        for position in positions:
            path, key = content.full_path(position), self.facts[part][position].key
            items.append(Item(path, self.rows.get(key), key, None if fits else state_of(os.stat(path))))
        streamed = Streamed(items, self.feeder, device)
        return streamed.keep() if fits else streamed

    def _survey(self, dataset: Dataset) -> Facts:
        """Survey all parts in one call, so that the saved facts are read and written only once."""
        if not self.pixel_cache:
            return {name: [] for name in dataset.parts}
        paths = tuple(path for part in dataset.parts.values() for path in part.content.paths)
        files = Files(dataset.train.content.root, paths)
        with CountDisplay("reading images", self.runtime.quiet) as display:
            facts = iter(survey(files, self.pixel_cache, self.size, cache_dir(), self.runtime.workers, display.tell))
        return {name: list(itertools.islice(facts, len(part))) for name, part in dataset.parts.items()}

    def _num_bytes(self) -> int:
        """Return the size of the whole data set in memory."""

        def sample_bytes(content: np.ndarray | Files) -> int:
            if isinstance(content, Files):
                return 3 * self.size**2
            return content[:1].nbytes if content.ndim == 2 else content.shape[3] * side_of(content, self.size) ** 2

        return sum(len(part) * sample_bytes(part.content) for part in self.dataset.parts.values())


def fingerprint(dataset: Dataset, facts: Facts) -> str:
    """Return a hash of every file or array, label and class name. Runs with the same fingerprint used the same data."""
    digest = hashlib.sha256(repr(dataset.class_names).encode())
    for line in _lines(dataset, facts):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _lines(dataset: Dataset, facts: Facts) -> Iterator[tuple[Any, ...]]:
    """Yield everything that the fingerprint depends on."""
    for name, part in dataset.parts.items():
        if isinstance(part.content, Files):
            for path, label, fact in zip(part.content.paths, part.labels, facts[name], strict=True):
                yield name, path, int(label), fact.key.hex()
        else:
            for array in (part.content, part.labels.astype("<i8")):
                yield name, array.shape, hashlib.sha256(np.ascontiguousarray(array)).hexdigest()
    if dataset.is_labelled is not None:
        yield "labelled", hashlib.sha256(np.packbits(dataset.is_labelled)).hexdigest()


def broken_files(dataset: Dataset, facts: Facts) -> dict[str, str]:
    """Return the problem of each file that cannot be used, by path."""
    return {
        dataset.parts[name].content.paths[position]: fact.problem
        for name in facts
        for position, fact in enumerate(facts[name])
        if fact.problem
    }


def refusal(dataset: Dataset, broken: dict[str, str]) -> str:
    """Return the error message that lists broken files."""
    count = sum(map(len, dataset.parts.values()))
    listed = "; ".join(f"{path} {problem}" for path, problem in list(broken.items())[:LISTED])
    more = f"; and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
    return (
        f"{dataset.name}: {len(broken)} of {count:,} images cannot be used: {listed}{more} "
        f"(repair the files, or leave them out with {named('on_bad_image', 'drop')})"
    )


def without_broken(dataset: Dataset, facts: Facts) -> tuple[Dataset, Facts]:
    """Return the data set and facts without broken files. Raise a UserError if too few files are left."""
    usable = {name: np.flatnonzero([not fact.problem for fact in part]) for name, part in facts.items()}
    for name, positions in usable.items():
        if not len(positions):
            raise UserError(f"{dataset.name}: no image of the {name} part can be used; repair the files")
    smaller = dataset.only(usable)
    if smaller.is_labelled is not None and smaller.is_labelled.all():
        raise UserError(f"{dataset.name}: no unlabelled image can be used; repair the files")
    lost = sorted(dataset.classes_shown - smaller.classes_shown)
    if lost:
        name = dataset.class_names[lost[0]]
        raise UserError(f"{dataset.name}: no labelled image of class {name} can be used; repair the files")
    return smaller, {name: [facts[name][position] for position in usable[name]] for name in facts}


def resized(content: np.ndarray, size: int | None) -> np.ndarray:
    """Resize images to squares of the given side, by default of their longer side. Features stay as they are."""
    if content.ndim == 2:
        return content
    side = side_of(content, size)
    return content if content.shape[1:3] == (side, side) else resize_images(content, side)


def side_of(images: np.ndarray, size: int | None) -> int:
    """Return the side of the squares that `resized` makes."""
    return size or max(images.shape[1:3])


def to_tensor(content: np.ndarray) -> Tensor:
    """Convert (N, H, W, C) images to an (N, C, H, W) tensor, and features to a float tensor."""
    if content.ndim == 2:
        return torch.from_numpy(np.ascontiguousarray(content, dtype=np.float32))
    planes = np.ascontiguousarray(content.transpose(0, 3, 1, 2))
    # Reshape through one dimension. With one channel, numpy's strides may differ, and torch would compile views again.
    return torch.from_numpy(planes.reshape(-1)).view(planes.shape)
