"""Accuracies under named protocols, NMI and ARI, all computed from a confusion matrix.

Rows are true classes, columns are predicted ids. Ids below num_seen are the seen classes themselves. The other ids are
clusters, and have no meaning until they are matched to classes. Shapes: C classes, P ids.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

TASK_AWARE = "task-aware"
"""The usual protocol of novel class discovery. `trssl` is its task-agnostic counterpart."""
BY_COUNTS = ("trssl", "orca", "gcd")
"""The protocols that need only the confusion matrix of the predictions."""
PROTOCOLS = {
    "trssl": "Seen: plain accuracy. Novel: a sample counts as correct only in the novel output that is matched to its "
    "class. All: one matching of all classes and outputs. This is the protocol of the TRSSL paper.",
    "orca": "As trssl, but the output of a seen class may also be matched to a novel class.",
    "gcd": "One matching of all classes and all outputs. Seen, novel and all are read from it.",
    TASK_AWARE: "As trssl, but it is known of each sample whether its class is seen or novel, and only outputs of that "
    "kind may answer. In novel class discovery, trssl is called task-agnostic.",
}
"""Description of each protocol, as reports and model cards show it."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracies in per cent. A value is None if there is no sample to count."""

    seen: float | None
    novel: float | None
    all: float | None


def confusion_matrix(truth: np.ndarray, predicted: np.ndarray, num_classes: int, num_ids: int) -> np.ndarray:
    """Return the (num_classes, num_ids) counts of (true class, predicted id).

    All classes and ids get a row or a column, so the matrices of several parts can be summed.

    >>> confusion_matrix(np.array([0, 1, 1]), np.array([0, 1, 3]), num_classes=2, num_ids=4)
    array([[1, 0, 0, 0],
           [0, 1, 0, 1]])
    """
    counts = np.zeros((num_classes, num_ids), dtype=np.int64)
    np.add.at(counts, (truth, predicted), 1)
    return counts


def accuracy(counts_CP: np.ndarray, num_seen: int, protocol: str = "trssl") -> Accuracy:
    """Compute the seen, novel and all accuracy under a named protocol.

    Matchings are one-to-one and maximise the number of correct samples (Hungarian algorithm).

    - trssl: seen is plain accuracy. For novel, a novel sample that is predicted as a seen class is wrong, and the other
      novel samples are matched over the novel ids. All is one matching over all classes and ids.
    - orca: as trssl, but novel samples are matched over *all* ids. A seen id may be matched to a novel class.
    - gcd: one matching over all classes and ids. Seen, novel and all are read from it.

    Args:
        counts_CP: the confusion matrix, seen classes and seen ids first.
        num_seen: the number of seen classes.
        protocol: one of `BY_COUNTS`.
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
        raise ValueError(f"{protocol}: unknown protocol; use one of {', '.join(BY_COUNTS)}")
    return Accuracy(
        seen=_per_cent(seen, counts_CP[:num_seen].sum()),
        novel=_per_cent(novel, counts_CP[num_seen:].sum()),
        all=_per_cent(total, counts_CP.sum()),
    )


def task_aware_predictions(logits_NP: np.ndarray, is_novel_N: np.ndarray, num_seen: int) -> np.ndarray:
    """Return (N,) the predicted ids if only novel ids may answer for novel samples, and only seen ids for the others.

    >>> task_aware_predictions(np.array([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0]]), np.array([False, True]), num_seen=1)
    array([0, 2])
    """
    may_answer_NP = (np.arange(logits_NP.shape[1]) >= num_seen) == is_novel_N[:, None]
    return np.where(may_answer_NP, logits_NP, -np.inf).argmax(axis=1)


def novel_as_seen(counts_CP: np.ndarray, num_seen: int) -> float | None:
    """Return the per cent of novel samples that are predicted as a seen class, or None without novel samples."""
    return _per_cent(counts_CP[num_seen:, :num_seen].sum(), counts_CP[num_seen:].sum())


def normalised_mutual_information(counts_CP: np.ndarray) -> float | None:
    """Return the normalised mutual information (NMI) of true classes and predicted ids::

        NMI = 2 I(class; id) / (H(class) + H(id))

    It is 1 if both are constant, as in scikit-learn, and None without samples.
    """
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
    """Return the adjusted Rand index (ARI): the agreement over pairs of samples, corrected for chance::

        ARI = (pairs together in both - expected) / (mean pairs together in one - expected)

    It is 1 if both partitions are trivial, and None without samples.
    """
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
    """Return (C,) the number of correct samples of each class, in the one-to-one matching with the most in total."""
    correct_C = np.zeros(len(counts_CP), dtype=np.int64)
    classes, ids = linear_sum_assignment(counts_CP, maximize=True)
    correct_C[classes] = counts_CP[classes, ids]
    return correct_C


def matched_columns(counts_CP: np.ndarray) -> np.ndarray:
    """Return (C,) the id of each class in the one-to-one matching with the most correct samples; needs C <= P."""
    return linear_sum_assignment(counts_CP, maximize=True)[1]


def score_text(score: float | None) -> str:
    """Format a score for a table: one decimal, or `-` for None."""
    return "-" if score is None else f"{score:.1f}"


def _per_cent(part: int, whole: int) -> float | None:
    return 100 * float(part) / float(whole) if whole else None


def _entropy(probabilities: np.ndarray) -> float:
    probabilities = probabilities[probabilities > 0]
    return float(-(probabilities * np.log(probabilities)).sum())


def _pairs(count):
    return count * (count - 1) / 2
