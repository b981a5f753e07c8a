"""A few samples of a data set as tensors, without a survey of the whole."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from openworld.core.errors import UserError
from openworld.data.dataset import Files, Part
from openworld.data.decode import BadImage, decode
from openworld.data.loader import resized, to_tensor


def peek(part: Part, positions: Sequence[int], size: int | None) -> Tensor:
    """These samples, images brought to one size."""
    chosen = part.content[np.asarray(positions, dtype=np.int64)]
    if not isinstance(chosen, Files):
        return to_tensor(resized(chosen, size))
    return to_tensor(np.stack([_decoded(Path(chosen.full_path(number)), size) for number in range(len(chosen))]))


def _decoded(path: Path, size: int | None) -> np.ndarray:
    try:
        return decode(path.read_bytes(), size)
    except BadImage as error:
        raise UserError(f"{path} {error}") from None


def some_of_each_class(part: Part, num_classes: int, count: int) -> list[int]:
    """Positions: so many of every class, and of the samples without one, from its first to its last sample."""
    positions = []
    for label in (*range(num_classes), -1):
        members = np.flatnonzero(part.labels == label)
        chosen = np.linspace(0, len(members) - 1, min(count, len(members))).round().astype(np.int64)
        positions += members[chosen].tolist()
    return positions
