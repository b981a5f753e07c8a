"""A data set before decoding: samples or image files, their classes, and the training and test parts."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Files:
    """Image files in an order that is the same on every machine."""

    root: Path
    paths: tuple[str, ...]
    """Paths relative to the root, with forward slashes."""

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, positions: np.ndarray) -> "Files":
        return Files(self.root, tuple(self.paths[position] for position in positions))

    def full_path(self, position: int) -> str:
        return f"{self.root}/{self.paths[position]}"


@dataclass(frozen=True)
class Part:
    """The training part or the test part: N samples and their classes."""

    content: np.ndarray | Files
    """(N, H, W, C) uint8 images, (N, D) float32 features, or image files."""
    labels: np.ndarray
    """(N,) int64 class numbers, counted from 0; -1 if the class is unknown."""

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, positions: np.ndarray) -> "Part":
        """Return the samples at these positions."""
        return Part(self.content[positions], self.labels[positions])

    def name_of(self, position: int) -> str | int:
        """Return what identifies a sample to users: the path of its file, or its position in the array."""
        return self.content.paths[position] if isinstance(self.content, Files) else position


@dataclass(frozen=True)
class Dataset:
    """A benchmark, in which split.py hides labels later, or user data, in which only some samples have a label."""

    name: str
    class_names: tuple[str, ...]
    """Names of all classes in the training and test parts. In user data, classes with labelled samples come first."""
    train: Part
    test: Part | None
    is_labelled: np.ndarray | None = None
    """(N,) bool, for user data: whether training may see the label of each training sample. None for a benchmark."""
    class_sizes: tuple[int, ...] = ()
    """For user data: number of training samples of each class, labelled or not. Empty if the numbers are unknown."""
    left_out: tuple[str, ...] = ()
    """Paths, relative to the root, of files in the folders that are not images by their extensions."""

    @property
    def parts(self) -> dict[str, Part]:
        """The parts that exist, by name: train, and test if there is one."""
        return {"train": self.train, **({"test": self.test} if self.test is not None else {})}

    @property
    def classes_shown(self) -> set[int]:
        """The classes that training may see labels of. For a benchmark: all classes, because its split comes later."""
        shown = self.train.labels if self.is_labelled is None else self.train.labels[self.is_labelled]
        return set(shown.tolist())

    @property
    def has_files(self) -> bool:
        """Whether the samples are image files."""
        return isinstance(self.train.content, Files)

    @property
    def has_features(self) -> bool:
        """Whether the samples are features, not images."""
        return isinstance(self.train.content, np.ndarray) and self.train.content.ndim == 2

    def only(self, positions: dict[str, np.ndarray]) -> "Dataset":
        """Return the data set with only the samples at these positions of each part."""
        parts = {name: part.only(positions[name]) for name, part in self.parts.items()}
        is_labelled = None if self.is_labelled is None else self.is_labelled[positions["train"]]
        return replace(self, train=parts["train"], test=parts.get("test"), is_labelled=is_labelled)
