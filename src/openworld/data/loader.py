"""From a data set to samples on call: files are surveyed, broken ones refused or dropped, images made one size."""

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
from openworld.data.pixel_cache import PixelCache
from openworld.data.samples import Feeder, InMemory, Samples, Streamed
from openworld.data.survey import Fact, survey
from openworld.data.worker import Item, state_of

LISTED = 5
"""Broken files that an error message names."""

Facts = dict[str, list[Fact]]
"""By part, of each of its files; empty for samples in memory."""


class Loader:
    """A data set whose samples are all sound, and can be had by their positions."""

    def __init__(self, dataset: Dataset, size: int | None, on_bad_image: str, runtime: Runtime):
        """`size`: the side of the square to which images are brought; images in memory may keep theirs."""
        if dataset.has_files and not size:
            raise UserError(f"{dataset.name}: images come in many sizes; give {named('image_size')}")
        self.size, self.runtime = size, runtime
        self.store = PixelCache(cache_dir(), size) if dataset.has_files else None
        facts = self._survey(dataset)
        self.fingerprint = fingerprint(dataset, facts)
        self.dropped = broken_files(dataset, facts)
        """Files that were left out, and why."""
        if self.dropped and on_bad_image == "refuse":
            raise UserError(refusal(dataset, self.dropped))
        self.dataset, self.facts = without_broken(dataset, facts) if self.dropped else (dataset, facts)
        self.rows = self.store.find() if self.store else {}
        self.feeder = None
        if self.store:
            self.feeder = Feeder(size, self.store.rows_path, runtime.workers, sum(map(len, dataset.parts.values())))

    def samples(self, part: str, positions: Sequence[int]) -> Samples:
        """Some samples of a part: kept on the device if the whole set fits there, else fetched for each batch."""
        content, device = self.dataset.parts[part].content, self.runtime.device
        fits = self._num_bytes() <= self.runtime.memory
        if not isinstance(content, Files):
            chosen = to_tensor(resized(content[np.asarray(positions, dtype=np.int64)], self.size))
            return InMemory(chosen.to(device) if fits else chosen, device)
        items = []
        for position in positions:
            path, row = content.full_path(position), self.rows.get(self.facts[part][position].key)
            items.append(Item(path, row, None if fits else state_of(os.stat(path))))
        streamed = Streamed(items, self.feeder, device)
        return streamed.keep() if fits else streamed

    def _survey(self, dataset: Dataset) -> Facts:
        """All parts at once: what is known of their files is read and written once."""
        if not self.store:
            return {name: [] for name in dataset.parts}
        paths = tuple(path for part in dataset.parts.values() for path in part.content.paths)
        files = Files(dataset.train.content.root, paths)
        with CountDisplay("reading images", self.runtime.quiet) as display:
            facts = iter(survey(files, self.store, self.size, cache_dir(), self.runtime.workers, display.tell))
        return {name: list(itertools.islice(facts, len(part))) for name, part in dataset.parts.items()}

    def _num_bytes(self) -> int:
        def sample_bytes(content: np.ndarray | Files) -> int:
            if isinstance(content, Files):
                return 3 * self.size**2
            return content[:1].nbytes if content.ndim == 2 else content.shape[3] * side_of(content, self.size) ** 2

        return sum(len(part) * sample_bytes(part.content) for part in self.dataset.parts.values())


def fingerprint(dataset: Dataset, facts: Facts) -> str:
    """A hash of every file or array, label and class name: two runs on the same fingerprint saw the same data."""
    digest = hashlib.sha256(repr(dataset.class_names).encode())
    for line in _lines(dataset, facts):
        digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _lines(dataset: Dataset, facts: Facts) -> Iterator[tuple[Any, ...]]:
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
    """What is wrong with each file that cannot be used."""
    return {
        dataset.parts[name].content.paths[position]: fact.problem
        for name in facts
        for position, fact in enumerate(facts[name])
        if fact.problem
    }


def refusal(dataset: Dataset, broken: dict[str, str]) -> str:
    count = sum(map(len, dataset.parts.values()))
    listed = "; ".join(f"{path} {problem}" for path, problem in list(broken.items())[:LISTED])
    more = f"; and {len(broken) - LISTED} more" if len(broken) > LISTED else ""
    return (
        f"{dataset.name}: {len(broken)} of {count:,} images cannot be used: {listed}{more} "
        f"(put them right, or leave them out with {named('on_bad_image', 'drop')})"
    )


def without_broken(dataset: Dataset, facts: Facts) -> tuple[Dataset, Facts]:
    sound = {name: np.flatnonzero([not fact.problem for fact in part]) for name, part in facts.items()}
    for name, positions in sound.items():
        if not len(positions):
            raise UserError(f"{dataset.name}: not one image of the {name} part can be used")
    smaller = dataset.only(sound)
    if smaller.is_labelled is not None and smaller.is_labelled.all():
        raise UserError(f"{dataset.name}: not one unlabelled image can be used")
    lost = sorted(dataset.classes_shown - smaller.classes_shown)
    if lost:
        raise UserError(f"{dataset.name}: not one labelled image of class {dataset.class_names[lost[0]]} can be used")
    return smaller, {name: [facts[name][position] for position in sound[name]] for name in facts}


def resized(content: np.ndarray, size: int | None) -> np.ndarray:
    """Images as squares: of the given side, or of their own longer one."""
    if content.ndim == 2:
        return content
    side = side_of(content, size)
    return content if content.shape[1:3] == (side, side) else resize_images(content, side)


def side_of(images: np.ndarray, size: int | None) -> int:
    return size or max(images.shape[1:3])


def to_tensor(content: np.ndarray) -> Tensor:
    """(N, H, W, C) images as (N, C, H, W); features as they are."""
    if content.ndim == 2:
        return torch.from_numpy(np.ascontiguousarray(content, dtype=np.float32))
    planes = np.ascontiguousarray(content.transpose(0, 3, 1, 2))
    # by way of one dimension: with one channel numpy's strides may be others, for which views would be compiled again
    return torch.from_numpy(planes.reshape(-1)).view(planes.shape)
