"""Empty files in place of user images, and helpers to read them."""

from pathlib import Path

import numpy as np
import pytest

from openworld.core.errors import UserError
from openworld.data.dataset import Dataset
from openworld.data.own import read_own

IMAGES = ("a.png", "b.png", "deep/c.png", "deep/d.png", "ünï cödé.png")


def put(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).touch()
    return root


def message(source: Path) -> str:
    with pytest.raises(UserError) as caught:
        read_own(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def names_of_labels(dataset: Dataset, part: str = "train") -> list[str | None]:
    labels = getattr(dataset, part).labels
    assert labels.dtype == np.int64
    return [None if label < 0 else dataset.class_names[label] for label in labels]
