"""Which true class was predicted as which, with the discovered classes matched to true ones.

Shapes: C true classes, M predicted classes as people name them today; in both the seen ones come first.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment


@dataclass(frozen=True)
class Confusion:
    counts: np.ndarray
    """(C, M) samples."""
    num_seen: int

    @classmethod
    def of(cls, truth: np.ndarray, predicted: np.ndarray, num_true: int, num_predicted: int, num_seen: int):
        """Of the samples whose class is known."""
        counts = np.zeros((num_true, num_predicted), dtype=np.int64)
        known = truth >= 0
        np.add.at(counts, (truth[known], predicted[known]), 1)
        return cls(counts, num_seen)

    @cached_property
    def matches(self) -> dict[int, int]:
        """From a predicted class to its true one: itself if it is seen, else as is right most often (Hungarian)."""
        rows, columns = linear_sum_assignment(self.counts[self.num_seen :, self.num_seen :], maximize=True)
        pairs = zip((columns + self.num_seen).tolist(), (rows + self.num_seen).tolist(), strict=True)
        return {**{number: number for number in range(self.num_seen)}, **dict(sorted(pairs, key=lambda pair: pair[1]))}

    @cached_property
    def columns(self) -> list[int]:
        """The predicted classes in the order of the true ones that they match, then those that match none."""
        rest = [column for column in range(self.counts.shape[1]) if column not in self.matches]
        return [*self.matches, *rest]

    def purity(self, predicted: int) -> tuple[float, int] | None:
        """The share of the most frequent true class among the samples of a predicted one, and that class."""
        column = self.counts[:, predicted]
        return (float(column.max() / column.sum()), int(column.argmax())) if column.sum() else None
