"""A few samples of a data set as tensors, without a survey of the whole."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from openworld.data.dataset import Files, Part
from openworld.data.decode import BadImage, decode
from openworld.data.loading import resized, to_tensor
from openworld.errors import UserError


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


def first_of_each_class(part: Part, num_classes: int, count: int) -> list[int]:
    """Positions: the first so many of every class, and of the samples without one."""
    return [
        int(position)
        for label in (*range(num_classes), -1)
        for position in np.flatnonzero(part.labels == label)[:count]
    ]
