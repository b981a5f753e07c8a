"""The confusion matrix, with the discovered classes matched to true classes.

Shapes: C true classes, M predicted classes with the names and merges of today. Seen classes come first in both.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix."""

    counts: np.ndarray
    """(C, M) numbers of samples."""
    num_seen: int
    """Number of seen classes."""

    @classmethod
    def of(cls, truth: np.ndarray, predicted: np.ndarray, num_true: int, num_predicted: int, num_seen: int):
        """Count the samples whose true class is known."""
        counts = np.zeros((num_true, num_predicted), dtype=np.int64)
        known = truth >= 0
        np.add.at(counts, (truth[known], predicted[known]), 1)
        return cls(counts, num_seen)

    @cached_property
    def matches(self) -> dict[int, int]:
        """True class that each predicted class matches.

        A seen class matches itself. The matching of the novel classes makes the most predictions right (Hungarian).
        """
        rows, columns = linear_sum_assignment(self.counts[self.num_seen :, self.num_seen :], maximize=True)
        pairs = zip((columns + self.num_seen).tolist(), (rows + self.num_seen).tolist(), strict=True)
        return {**{number: number for number in range(self.num_seen)}, **dict(sorted(pairs, key=lambda pair: pair[1]))}

    @cached_property
    def columns(self) -> list[int]:
        """Predicted classes in the order of the true classes that they match, then those without a match."""
        rest = [column for column in range(self.counts.shape[1]) if column not in self.matches]
        return [*self.matches, *rest]

    def purity(self, predicted: int) -> tuple[float, int] | None:
        """Return the proportion of the most frequent true class among the samples of a predicted class, and that class.

        Return None if no sample is predicted as this class.
        """
        column = self.counts[:, predicted]
        return (float(column.max() / column.sum()), int(column.argmax())) if column.sum() else None
