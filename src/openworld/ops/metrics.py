"""Accuracies under three named protocols, NMI and ARI: all from one confusion matrix.

Rows are true classes, columns predicted ids; ids below num_seen are the seen classes themselves, the
others are clusters whose numbers mean nothing until they are matched. Shapes: C classes, P ids.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

PROTOCOLS = {
    "trssl": "Known classes as they are; a sample of a new class counts only in the output matched to that class; "
    "all: one matching of all classes. As the paper on TRSSL counts.",
    "orca": "As trssl, but the output of a known class may also be matched to a new class.",
    "gcd": "One matching of all classes and all outputs, from which the three are read.",
}
"""What each counts, for people."""


@dataclass(frozen=True)
class Accuracy:
    """Per cent, or None where there is no sample to count."""

    seen: float | None
    novel: float | None
    all: float | None


def confusion_matrix(truth: np.ndarray, predicted: np.ndarray, num_classes: int, num_ids: int) -> np.ndarray:
    """Counts of (true class, predicted id), for all of either: the matrices of several parts can be summed.

    >>> confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 3]), num_classes=2, num_ids=4)
    array([[1, 0, 0, 0],
           [0, 1, 0, 1]])
    """
    counts = np.zeros((num_classes, num_ids), dtype=np.int64)
    np.add.at(counts, (truth, predicted), 1)
    return counts


def accuracy(counts_CP: np.ndarray, num_seen: int, protocol: str = "trssl") -> Accuracy:
    """Seen, novel and all accuracy under a named protocol.

    - trssl: seen is plain accuracy; a novel sample predicted as a seen class is wrong, the rest are matched
      (Hungarian) over the novel ids; all is one matching over all classes and ids.
    - orca: as trssl, but novel samples are matched over *all* ids, so that a seen id may stand for a novel class.
    - gcd: one matching over all classes and ids, from which seen, novel and all are read.
    """
    if protocol == "gcd":
        correct_C = _matched(counts_CP)
        seen, novel, total = correct_C[:num_seen].sum(), correct_C[num_seen:].sum(), correct_C.sum()
    elif protocol in ("trssl", "orca"):
        first_id = num_seen if protocol == "trssl" else 0
        seen = np.trace(counts_CP[:num_seen, :num_seen])
        novel = _matched(counts_CP[num_seen:, first_id:]).sum()
        total = _matched(counts_CP).sum()
    else:
        raise ValueError(f"{protocol}: not one of {', '.join(PROTOCOLS)}")
    return Accuracy(
        seen=_per_cent(seen, counts_CP[:num_seen].sum()),
        novel=_per_cent(novel, counts_CP[num_seen:].sum()),
        all=_per_cent(total, counts_CP.sum()),
    )


def novel_as_seen(counts_CP: np.ndarray, num_seen: int) -> float | None:
    """Per cent of the novel samples that were predicted as a seen class."""
    return _per_cent(counts_CP[num_seen:, :num_seen].sum(), counts_CP[num_seen:].sum())


def normalised_mutual_information(counts_CP: np.ndarray) -> float | None:
    """I(class; id) over the mean of the two entropies; 1 where both are constant, as in scikit-learn."""
    total = counts_CP.sum()
    if total == 0:
        return None
    joint = counts_CP / total
    entropy_rows, entropy_columns = _entropy(joint.sum(axis=1)), _entropy(joint.sum(axis=0))
    if entropy_rows == 0 and entropy_columns == 0:
        return 1.0
    information = entropy_rows + entropy_columns - _entropy(joint.ravel())
    return float(max(information, 0.0) / ((entropy_rows + entropy_columns) / 2))


def adjusted_rand_index(counts_CP: np.ndarray) -> float | None:
    """Agreement over pairs of samples, corrected for chance; 1 where both partitions are trivial."""
    total = counts_CP.sum()
    if total == 0:
        return None
    together = _pairs(counts_CP).sum()
    in_rows, in_columns = _pairs(counts_CP.sum(axis=1)).sum(), _pairs(counts_CP.sum(axis=0)).sum()
    all_pairs = _pairs(total)
    expected = in_rows * in_columns / all_pairs if all_pairs else 0.0
    largest = (in_rows + in_columns) / 2
    return 1.0 if largest == expected else float((together - expected) / (largest - expected))


def _matched(counts_CP: np.ndarray) -> np.ndarray:
    """For each class, the samples on its id in the one-to-one matching that makes the most correct."""
    correct_C = np.zeros(len(counts_CP), dtype=np.int64)
    classes, ids = linear_sum_assignment(counts_CP, maximize=True)
    correct_C[classes] = counts_CP[classes, ids]
    return correct_C


def matched_columns(counts_CP: np.ndarray) -> np.ndarray:
    """(C,) for each class the id that it gets in that matching; there must be an id for each."""
    return linear_sum_assignment(counts_CP, maximize=True)[1]


def score_text(score: float | None) -> str:
    """As tables show it."""
    return "-" if score is None else f"{score:.1f}"


def _per_cent(part: int, whole: int) -> float | None:
    return 100 * float(part) / float(whole) if whole else None


def _entropy(shares: np.ndarray) -> float:
    shares = shares[shares > 0]
    return float(-(shares * np.log(shares)).sum())


def _pairs(count):
    return count * (count - 1) / 2
