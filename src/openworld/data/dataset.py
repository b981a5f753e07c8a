"""What a source of data gives: samples, their classes, which are for testing. No pixels are decoded here."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Files:
    """Image files, in an order that is the same on every machine."""

    root: Path
    paths: tuple[str, ...]
    """Relative to the root, with forward slashes."""

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, positions: np.ndarray) -> "Files":
        return Files(self.root, tuple(self.paths[position] for position in positions))

    def full_path(self, position: int) -> str:
        return f"{self.root}/{self.paths[position]}"


@dataclass(frozen=True)
class Part:
    """The training or the test part: N samples and their classes."""

    content: np.ndarray | Files
    """(N, H, W, C) uint8 images, (N, D) float32 features, or image files."""
    labels: np.ndarray
    """(N,) int64, counted from 0; -1 where nobody knows."""

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, positions: np.ndarray) -> "Part":
        return Part(self.content[positions], self.labels[positions])

    def name_of(self, position: int) -> str | int:
        """How a person finds a sample again: its path, or its position."""
        return self.content.paths[position] if isinstance(self.content, Files) else position


@dataclass(frozen=True)
class Dataset:
    """A benchmark, whose labels are to be hidden (split.py), or own data, where only some samples have a label."""

    name: str
    class_names: tuple[str, ...]
    """Of all classes that are named anywhere; for own data those with labelled samples come first."""
    train: Part
    test: Part | None
    is_labelled: np.ndarray | None = None
    """(N,) bool, for own data: the training samples whose label training may see. None: a benchmark."""
    class_sizes: tuple[int, ...] = ()
    """For own data: training samples of each class, labelled or not, where somebody counted them."""
    left_out: tuple[str, ...] = ()
    """Files in its folders that are no images by their names, relative to its root."""

    @property
    def parts(self) -> dict[str, Part]:
        return {"train": self.train, **({"test": self.test} if self.test is not None else {})}

    @property
    def classes_shown(self) -> set[int]:
        """The classes of which training may see labels; of a benchmark, all until its split hides some."""
        shown = self.train.labels if self.is_labelled is None else self.train.labels[self.is_labelled]
        return set(shown.tolist())

    @property
    def has_files(self) -> bool:
        return isinstance(self.train.content, Files)

    @property
    def has_features(self) -> bool:
        return isinstance(self.train.content, np.ndarray) and self.train.content.ndim == 2

    def only(self, positions: dict[str, np.ndarray]) -> "Dataset":
        """The set with only these positions of each part."""
        parts = {name: part.only(positions[name]) for name, part in self.parts.items()}
        is_labelled = None if self.is_labelled is None else self.is_labelled[positions["train"]]
        return replace(self, train=parts["train"], test=parts.get("test"), is_labelled=is_labelled)
