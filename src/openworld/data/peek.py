"""Load a few samples of a data set as tensors, without reading all of it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from openworld.core.errors import UserError
from openworld.data.dataset import Files, Part
from openworld.data.decode import BadImage, decode
from openworld.data.loader import resized, to_tensor


def peek(part: Part, positions: Sequence[int], size: int | None) -> Tensor:
    """Return the samples at these positions. Images are resized to squares of `size` pixels if it is given."""
    chosen = part.content[np.asarray(positions, dtype=np.int64)]
    if not isinstance(chosen, Files):
        return to_tensor(resized(chosen, size))
    return to_tensor(np.stack([_decoded(Path(chosen.full_path(number)), size) for number in range(len(chosen))]))


def _decoded(path: Path, size: int | None) -> np.ndarray:
    try:
        return decode(path.read_bytes(), size)
    except BadImage as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    raise UserError(f"{path} {reason} (`openworld data check` lists all broken files)")


def some_of_each_class(part: Part, num_classes: int, count: int) -> list[int]:
    """Return positions of at most `count` samples of each class, then of those without a class, spaced evenly."""
    positions = []
    for label in (*range(num_classes), -1):
        members = np.flatnonzero(part.labels == label)
        chosen = np.linspace(0, len(members) - 1, min(count, len(members))).round().astype(np.int64)
        positions += members[chosen].tolist()
    return positions
