"""Estimate the number of classes from the features of all samples and the labels of some.

Shapes: N samples of D features. The first L samples are labelled, with S seen classes. Q query samples look at their M
nearest neighbours. K clusters, R runs of k-means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import stdtrit  # Student's t; importing scipy.stats would take half a second
from torch import Generator, Tensor

from openworld.core.errors import CannotEstimate, UserError, named
from openworld.ops.kmeans import kmeans_sweep, squared_distances
from openworld.ops.metrics import matched_columns

RUNS = 3
"""Number of k-means runs for each k."""
TOP = 10
"""Number of best k whose mean is the paper's estimate."""
MOST_QUERIES = 5000
"""Maximum number of labelled samples whose neighbours are counted."""
CONFIDENCE = 0.9
"""Proportion of the intervals that should contain the true number of classes."""
MOSTLY_LABELLED = 0.8
"""Labelled proportion of the seen classes from which their size may come from the labels, not from the images."""
CONFUSION = (0.8, 1.25)
"""Range of how often a seen class is confused with a novel class, relative to another seen class."""
FEWEST_LABELS = 3
"""Labelled samples that a class needs to be used: a query sample, and two others of its class that it may find."""
QUERY_CHUNK = 500
"""Number of query samples that are compared with all samples at once."""


@dataclass(frozen=True)
class Score:
    """How well k clusters fit the labelled samples, in per cent."""

    k: int
    accuracy: float
    """Accuracy under the best one-to-one matching of classes and clusters."""
    reassigned: float
    """The same accuracy after samples in unmatched clusters were reassigned to the nearest matched cluster."""


@dataclass(frozen=True)
class Estimate:
    """An estimate of the number of classes, seen and novel together."""

    num_classes: int
    low: int
    high: int | None
    """Upper end of the interval. None if it is unknown."""
    estimator: str
    num_seen: int
    curve: tuple[Score, ...]
    details: dict[str, Any]
    """What the estimator measured."""

    def text(self) -> str:
        """Return the estimate in words.

        >>> Estimate(10, 9, 11, "paper", 5, (), {}).text()
        'about 10 classes (9 to 11), 5 of them novel'
        """
        interval = f"{self.low} to {self.high}" if self.high is not None else f"{self.low} or more"
        return f"about {self.num_classes} classes ({interval}), {self.num_classes - self.num_seen} of them novel"

    def how_sure(self) -> str:
        """Return the certainty of the estimate in words."""
        if self.estimator.startswith("paper"):
            floor = self.num_seen + (TOP - 1) / 2
            return (
                f"the interval is the range of the ten best k and does not measure the error; "
                f"this estimate is never below {floor:g}"
            )
        if self.high is None:
            return "the error is unknown: there are too few seen classes or labels"
        deviation = (self.high - self.low) / (2 * self.num_classes)
        word = "well" if deviation <= 0.1 else "roughly" if deviation <= 0.25 else "poorly"
        return "; ".join([f"{word} determined: plus or minus {deviation:.0%}", *self._doubts()])

    def _doubts(self) -> list[str]:
        """Return what the user should know beside the interval."""
        doubts, size = [], self.details["num_samples"] / self.details["exact"]
        if self.low == self.num_seen:
            doubts.append("there may be no novel class")
        if self.details["num_labelled"] > MOSTLY_LABELLED * self.num_seen * size:
            doubts.append(
                "hardly any unlabelled sample is of a seen class, so this is right only if a novel class has about "
                f"{round(size)} samples, like the seen ones"
            )
        return doubts

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# From nearest neighbours -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Labelled proportions among the neighbours of labelled samples, and the equation for the number of classes.

    Proportions are weighted means over samples. The weight of a sample is the number of labelled samples of its own
    class among its neighbours, because such samples are where their class is dense.
    """

    same: float
    """Proportion of the neighbours that have a label of the sample's own class."""
    other: float
    """Proportion of the neighbours that have a label of another class."""
    num_seen: int
    num_labelled: int
    num_samples: int

    def by_size(self, k: float) -> float:
        """Return the labelled proportion of a seen class, `L k / (S N)`, if k classes have the seen ones' mean size."""
        return self.num_labelled * k / (self.num_seen * self.num_samples)

    def by_neighbours(self, k: float, confusion: float = 1.0) -> float:
        """Return the labelled proportion among the neighbours, if there are k classes and novel ones had labels too::

            same (1 - 2 k / N) + other (1 + confusion (k - S) / (S - 1))

        A novel class is near a seen class `confusion` times as often as another seen class is.
        """
        counted = 1 - 2 * k / self.num_samples  # a sample and the neighbour that gives its weight are not counted
        return self.same * counted + self.other * (1 + confusion * (k - self.num_seen) / (self.num_seen - 1))

    def num_classes(self, confusion: float = 1.0) -> float:
        """Solve `by_size(k) = by_neighbours(k, confusion)` for k. Return infinity if no solution is plausible."""
        at_zero = self.by_neighbours(0, confusion)
        slope = self.by_size(1) - (self.by_neighbours(1, confusion) - at_zero)
        k = at_zero / slope if slope > 0 else float("inf")
        # Fewer classes than the seen ones can be chance if the classes are well separated. Otherwise the features are
        # too weak.
        is_plausible = k >= 0.9 * self.num_seen or (k > 0 and self.same > 2 * self.other)
        return k if is_plausible and k <= self.num_samples / FEWEST_LABELS else float("inf")


def refuse_few_labels(labels_L: Tensor) -> None:
    """Raise a CannotEstimate if fewer than 2 classes have `FEWEST_LABELS` labelled samples."""
    sizes_S = torch.bincount(labels_L)
    if len(sizes_S) < 2:
        raise CannotEstimate("only one class has labels: to estimate the number of classes, label at least 2 classes")
    if int((sizes_S >= FEWEST_LABELS).sum()) < 2:
        raise CannotEstimate(
            f"fewer than 2 classes have {FEWEST_LABELS} labelled samples: to estimate the number of classes, "
            f"label at least {FEWEST_LABELS} samples of at least 2 classes"
        )


def estimate_by_neighbours(features_ND: Tensor, labels_L: Tensor) -> Estimate:
    """Estimate the number of classes from the labels among the nearest neighbours of labelled samples.

    Where a class is dense, the labelled proportion of the neighbours is the labelled proportion of the class. With the
    number of its labels, this gives the size of the class. The number of classes is the number of all samples, divided
    by the mean size of a seen class. `Rates` has the equation.

    Use it if all of these hold:

    - The labelled samples are a random part of their classes.
    - The features were not trained on the labels.
    - Novel classes are as large as seen classes on average.
    - A seen class is confused with a novel class as often as with another seen class.

    Args:
        features_ND: the features of all samples, the labelled ones first.
        labels_L: the class numbers of the labelled samples.

    Raises:
        CannotEstimate: if there are too few labels, or the features do not separate the classes.
    """
    num_seen, num_samples = int(labels_L.max()) + 1, len(features_ND)
    refuse_few_labels(labels_L)
    sizes_S = torch.bincount(labels_L).cpu()
    num_neighbours = neighbourhood(num_samples, num_seen)
    counts_QS, labels_Q = labels_nearby(features_ND, labels_L, num_neighbours)

    def rates(left_out: int | None = None) -> Rates:
        return measure_rates(counts_QS, labels_Q, sizes_S, num_samples, num_neighbours, left_out)

    exact = rates().num_classes()
    edges = [rates().num_classes(confusion) for confusion in CONFUSION]
    if not np.isfinite([exact, *edges]).all():
        raise CannotEstimate(
            "the number of classes cannot be estimated from these features: samples of one class are hardly closer "
            "together than other samples. Train the features for longer, label more samples, or set the number yourself"
        )
    others = [rates(left_out).num_classes() for left_out in range(num_seen)] if num_seen > 2 else []
    num_classes, error = max(round(exact), num_seen), jackknife_error(others)
    low, high = num_seen, None
    if error is not None:  # chance and confusion are independent errors, so their squares are added
        low = max(round(exact - np.hypot(error, exact - min(edges))), num_seen)
        high = max(round(exact + np.hypot(error, max(edges) - exact)), num_classes)
    details = {"exact": exact, "num_neighbours": num_neighbours, **asdict(rates())}
    return Estimate(num_classes, low, high, "neighbours", num_seen, (), details)


def neighbourhood(num_samples: int, num_seen: int) -> int:
    """Return the number M of neighbours to look at: large for precision, but a fraction of a class."""
    return min(max(num_samples // (5 * num_seen), 10), 100, num_samples - 1)


def labels_nearby(features_ND: Tensor, labels_L: Tensor, num_neighbours: int) -> tuple[Tensor, Tensor]:
    """Count the labels among the nearest neighbours of labelled samples.

    Returns:
        (Q, S) how many labelled samples of each class are among the neighbours of each query, and (Q,) the classes of
        the queries. The queries are all labelled samples, or every n-th of them if there are too many.
    """
    num_labelled, device = len(labels_L), features_ND.device
    stride = -(-num_labelled // MOST_QUERIES)
    queries_Q = torch.arange(0, num_labelled, stride, device=device)
    classes_LS = F.one_hot(labels_L).float()
    counts = []
    for chunk in queries_Q.split(QUERY_CHUNK):
        distances = squared_distances(features_ND, features_ND[None, chunk])[0].T
        distances[torch.arange(len(chunk), device=device), chunk] = torch.inf  # a sample is not its own neighbour
        nearest = distances.topk(num_neighbours, dim=1, largest=False).indices
        labels = classes_LS[nearest.clamp(max=num_labelled - 1)] * (nearest < num_labelled)[..., None]
        counts.append(labels.sum(dim=1).cpu())
    return torch.cat(counts), labels_L[queries_Q].cpu()


def measure_rates(
    counts_QS: Tensor, labels_Q: Tensor, sizes_S: Tensor, num_samples: int, num_neighbours: int, left_out: int | None
) -> Rates:
    """Compute the `Rates` from the counts of `labels_nearby`.

    Args:
        counts_QS: labels of each class among the neighbours of each query.
        labels_Q: the classes of the queries.
        sizes_S: the number of labelled samples of each class.
        num_samples: the number N of all samples.
        num_neighbours: the number M of neighbours of each query.
        left_out: a class whose labels are treated as unknown, for the jackknife; None for no class.
    """
    used_S = torch.arange(len(sizes_S)) != (-1 if left_out is None else left_out)
    is_used_Q = used_S[labels_Q] & (sizes_S[labels_Q] >= FEWEST_LABELS)
    counts_QS, labels_Q = counts_QS[is_used_Q] * used_S, labels_Q[is_used_Q]
    num_labelled = int(sizes_S[used_S].sum())
    same_Q = counts_QS.gather(1, labels_Q[:, None])[:, 0]
    other_Q = counts_QS.sum(dim=1) - same_Q

    def by_class(values_Q: Tensor) -> Tensor:
        return torch.zeros(len(sizes_S)).index_add_(0, labels_Q, values_Q)

    # Rates are computed for each class separately. Then classes are weighted by their density: the proportion of their
    # labels that a neighbourhood holds. A direct sum over samples would need equal numbers of labels in all classes.
    weight_S = by_class(same_Q)
    is_found_S = weight_S > 1
    density_S = weight_S / by_class(torch.ones_like(same_Q)).clamp(min=1) / sizes_S * is_found_S
    # Two samples of the class are not counted in `same`: the query itself, and the neighbour that gives its weight.
    correction_S = sizes_S / (sizes_S - 2).clamp(min=1)
    same_S = by_class(same_Q * (same_Q - 1)) / (weight_S - 1).clamp(min=1) * correction_S
    other_S = by_class(same_Q * other_Q) / weight_S.clamp(min=1)
    class_weights_S = density_S / density_S.sum().clamp(min=1e-12) / (num_neighbours - 1)
    same, other = float(same_S @ class_weights_S), float(other_S @ class_weights_S)
    return Rates(same, other, int(used_S.sum()), num_labelled, num_samples)


def jackknife_error(others: Sequence[float]) -> float | None:
    """Return the half width of the jackknife interval at the level `CONFIDENCE`, or None if it cannot be computed::

        error = t sqrt((n - 1) / n sum_i (others[i] - mean(others))^2)

    `others` are n estimates that each leave one class out. t is the quantile of Student's t with n - 1 degrees of
    freedom. The error cannot be computed if there are no such estimates or one of them is infinite.
    """
    if not others or not np.isfinite(others).all():
        return None
    count = len(others)
    deviation = np.sqrt((count - 1) / count * np.square(np.array(others) - np.mean(others)).sum())
    return float(stdtrit(count - 1, (1 + CONFIDENCE) / 2) * deviation)


# From k-means, as in the paper -------------------------------------------------------------------------------


def estimate_like_the_paper(curve: Sequence[Score], num_seen: int, reassign: bool = True) -> Estimate:
    """Estimate the number of classes as the paper does: the mean of the ten k whose clusters fit the labels best.

    Args:
        curve: the scores of all k, from `score_counts`.
        num_seen: the number of seen classes.
        reassign: whether to compare the accuracy after reassignment, as the paper does.
    """

    def fit(score: Score) -> float:
        return score.reassigned if reassign else score.accuracy

    if len(curve) < TOP:
        raise UserError(
            f"{named('max_classes')} leaves {len(curve)} values of k, and the paper's estimate is the mean of {TOP}; "
            f"use a larger {named('max_classes')}"
        )
    best = [score.k for score in sorted(curve, key=fit, reverse=True)[:TOP]]
    details = {"reassign": reassign, "best": sorted(best), "lowest_possible": num_seen + (TOP - 1) / 2}
    return Estimate(round(np.mean(best)), min(best), max(best), "paper", num_seen, tuple(curve), details)


def score_counts(
    features_ND: Tensor, labels_L: Tensor, counts: Sequence[int], source: Generator, runs: int = RUNS
) -> Iterator[Score]:
    """Run k-means for every k in `counts` and yield how well the clusters fit the labels, as means over the runs.

    Args:
        features_ND: the features of all samples, the labelled ones first.
        labels_L: the class numbers of the labelled samples.
        counts: the values of k, ascending.
        source: the generator of k-means.
        runs: the number of k-means runs for each k.
    """
    if counts[-1] > len(features_ND):
        raise UserError(
            f"{len(features_ND)} samples cannot form {counts[-1]} clusters; use a smaller {named('max_classes')}"
        )
    labelled_LD, labels = features_ND[: len(labels_L)], labels_L.cpu().numpy()
    for k, clustering in zip(counts, kmeans_sweep(features_ND, counts, source, runs), strict=True):
        clusters_RL = clustering.labels[:, : len(labels_L)].cpu().numpy()
        distances_RLK = squared_distances(labelled_LD, clustering.centres).cpu().numpy()
        fits = [fit_to_labels(*run, labels) for run in zip(clusters_RL, distances_RLK, strict=True)]
        yield Score(k, *np.mean(fits, axis=0).tolist())


def fit_to_labels(clusters_L: np.ndarray, distances_LK: np.ndarray, labels_L: np.ndarray) -> tuple[float, float]:
    """Return the per cent of labelled samples in the cluster matched to their class, before and after reassignment.

    Each class is matched to one cluster (Hungarian algorithm). Reassignment moves the samples of unmatched clusters to
    the nearest matched cluster.

    Args:
        clusters_L: the cluster of each labelled sample.
        distances_LK: the squared distances to all centres.
        labels_L: the class numbers.
    """
    num_seen, num_clusters = int(labels_L.max()) + 1, distances_LK.shape[1]
    counts_SK = np.zeros((num_seen, num_clusters), dtype=np.int64)
    np.add.at(counts_SK, (labels_L, clusters_L), 1)
    matched_S = matched_columns(counts_SK)
    is_matched_L = np.isin(clusters_L, matched_S)
    nearest_matched_L = matched_S[distances_LK[:, matched_S].argmin(axis=1)]
    is_right_L = clusters_L == matched_S[labels_L]
    is_right_after_L = np.where(is_matched_L, clusters_L, nearest_matched_L) == matched_S[labels_L]
    return 100 * float(is_right_L.mean()), 100 * float(is_right_after_L.mean())
