"""How many classes are in there: from the features of all samples, and the labels of a few.

Shapes: N samples of D features, the first L of them labelled, with S seen classes; Q samples that look at their M
nearest neighbours; K clusters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import stdtrit  # Student's t; scipy.stats would take half a second to import
from torch import Generator, Tensor

from openworld.core.errors import UserError, named
from openworld.ops.kmeans import kmeans_sweep, squared_distances
from openworld.ops.metrics import matched_columns

RUNS = 3
"""Of k-means for each k."""
TOP = 10
"""The paper's estimate is the mean of so many of the best k."""
MOST_QUERIES = 5000
SURENESS = 0.9
"""The share of intervals that ought to hold the truth."""
CONFUSION = (0.8, 1.25)
"""How much less or more often than with another seen class, a seen class may be confused with a novel one."""
FEWEST_LABELS = 3
"""Of a class, to be looked at: a sample, and two others of its class that it may find."""
QUERY_CHUNK = 500


@dataclass(frozen=True)
class Score:
    """How well k clusters fit the labelled samples, in per cent."""

    k: int
    accuracy: float
    """Under the best matching of classes and clusters."""
    reassigned: float
    """The same, after samples in unmatched clusters went to the nearest matched one."""


@dataclass(frozen=True)
class Estimate:
    """The number of classes, seen and novel."""

    num_classes: int
    low: int
    high: int | None
    """None: nobody can tell."""
    estimator: str
    num_seen: int
    curve: tuple[Score, ...]
    details: dict[str, Any]
    """Whatever the estimator measured."""

    def text(self) -> str:
        """For a person to read.

        >>> Estimate(10, 9, 11, "paper", 5, (), {}).text()
        'about 10 classes (9 to 11), 5 of them new'
        """
        interval = f"{self.low} to {self.high}" if self.high is not None else f"{self.low} or more"
        return f"about {self.num_classes} classes ({interval}), {self.num_classes - self.num_seen} of them new"

    def how_sure(self) -> str:
        if self.estimator.startswith("paper"):
            floor = self.num_seen + (TOP - 1) / 2
            return (
                f"the interval is that of the ten best k, no measure of how sure this is; it is never below {floor:g}"
            )
        if self.high is None:
            return "how sure this is cannot be told: too few known classes or labels"
        spread = (self.high - self.low) / (2 * self.num_classes)
        word = "well" if spread <= 0.1 else "roughly" if spread <= 0.25 else "hardly"
        return f"{word} determined: plus or minus {spread:.0%}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


# By neighbours -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Of the neighbours of labelled samples: the share that is labelled, by class.

    Samples count by how many labelled ones of their class they find, for these lie where their class is dense.
    """

    same: float
    """Labelled, of the sample's own class."""
    other: float
    """Labelled, of another class."""
    num_seen: int
    num_labelled: int
    num_samples: int

    def by_size(self, k: float) -> float:
        """The share of a seen class that is labelled, if there are k classes of the seen ones' mean size."""
        return self.num_labelled * k / (self.num_seen * self.num_samples)

    def by_neighbours(self, k: float, confusion: float = 1.0) -> float:
        """The same, from what is near, if novel ones also had labels; a novel class is `confusion` times as often
        near a seen one as another seen class is."""
        left = 1 - 2 * k / self.num_samples  # of a class: the sample itself and the one it counts by are not nearby
        return self.same * left + self.other * (1 + confusion * (k - self.num_seen) / (self.num_seen - 1))

    def num_classes(self, confusion: float = 1.0) -> float:
        """The k for which both agree; infinite if there is none that makes sense."""
        at_none = self.by_neighbours(0, confusion)
        slope = self.by_size(1) - (self.by_neighbours(1, confusion) - at_none)
        k = at_none / slope if slope > 0 else float("inf")
        # fewer than are seen may be chance where classes keep to themselves; else the features cannot carry it
        makes_sense = k >= 0.9 * self.num_seen or (k > 0 and self.same > 2 * self.other)
        return k if makes_sense and k <= self.num_samples / FEWEST_LABELS else float("inf")


def refuse_few_labels(labels_L: Tensor) -> None:
    sizes_S = torch.bincount(labels_L)
    if len(sizes_S) < 2:
        raise UserError("only one class has labels: at least 2 are needed to estimate how many there are")
    if int((sizes_S >= FEWEST_LABELS).sum()) < 2:
        raise UserError(f"fewer than 2 classes have {FEWEST_LABELS} labelled samples, which the estimate needs")


def estimate_by_neighbours(features_ND: Tensor, labels_L: Tensor) -> Estimate:
    """Compares how densely the seen classes are labelled with how many labels there are.

    Where a class is dense, the labelled share of what is near tells the labelled share of the class, and that with the
    number of its labels its size; all samples together, in units of the seen classes' mean size, are the number of
    classes. It supposes that labelled samples are a random part of their classes, that the features have not
    been trained on the labels, that novel classes are as large as seen ones on average, and that seen classes are as
    often confused with a novel class as with another seen one.
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
        raise UserError(
            "the number of classes cannot be told from these features: samples of one class hardly lie closer together "
            "than others (learn features for longer, label more, or say how many classes there are)"
        )
    others = [rates(left_out).num_classes() for left_out in range(num_seen)] if num_seen > 2 else []
    num_classes, error = max(round(exact), num_seen), jackknife_error(others)
    low, high = num_seen, None
    if error is not None:  # two errors that have nothing to do with each other
        low = max(round(exact - np.hypot(error, exact - min(edges))), num_seen)
        high = max(round(exact + np.hypot(error, max(edges) - exact)), num_classes)
    details = {"exact": exact, "num_neighbours": num_neighbours, **asdict(rates())}
    return Estimate(num_classes, low, high, "neighbours", num_seen, (), details)


def neighbourhood(num_samples: int, num_seen: int) -> int:
    """Neighbours to look at: many for the sake of precision, but a fraction of a class."""
    return min(max(num_samples // (5 * num_seen), 10), 100, num_samples - 1)


def labels_nearby(features_ND: Tensor, labels_L: Tensor, num_neighbours: int) -> tuple[Tensor, Tensor]:
    """(Q, S) how many labelled samples of each class are among the nearest neighbours; and (Q,) whose they are."""
    num_labelled, device = len(labels_L), features_ND.device
    stride = -(-num_labelled // MOST_QUERIES)
    queries_Q = torch.arange(0, num_labelled, stride, device=device)
    classes_LS = F.one_hot(labels_L).float()
    counts = []
    for chunk in queries_Q.split(QUERY_CHUNK):
        distances = squared_distances(features_ND, features_ND[None, chunk])[0].T
        distances[torch.arange(len(chunk), device=device), chunk] = torch.inf  # nobody is a neighbour of itself
        near = distances.topk(num_neighbours, dim=1, largest=False).indices
        shown = classes_LS[near.clamp(max=num_labelled - 1)] * (near < num_labelled)[..., None]
        counts.append(shown.sum(dim=1).cpu())
    return torch.cat(counts), labels_L[queries_Q].cpu()


def measure_rates(
    counts_QS: Tensor, labels_Q: Tensor, sizes_S: Tensor, num_samples: int, num_neighbours: int, left_out: int | None
) -> Rates:
    """`left_out`: a class whose labels are taken for unknown."""
    used_S = torch.arange(len(sizes_S)) != (-1 if left_out is None else left_out)
    asked_Q = used_S[labels_Q] & (sizes_S[labels_Q] >= FEWEST_LABELS)
    counts_QS, labels_Q = counts_QS[asked_Q] * used_S, labels_Q[asked_Q]
    num_labelled = int(sizes_S[used_S].sum())
    same_Q = counts_QS.gather(1, labels_Q[:, None])[:, 0]
    other_Q = counts_QS.sum(dim=1) - same_Q

    def by_class(values_Q: Tensor) -> Tensor:
        return torch.zeros(len(sizes_S)).index_add_(0, labels_Q, values_Q)

    # Rates are those of each class by itself, and classes count by their density, which is how much of their labels a
    # neighbourhood holds. Samples could be summed up directly only if all classes had as many labels.
    weight_S = by_class(same_Q)
    found_S = weight_S > 1
    density_S = weight_S / by_class(torch.ones_like(same_Q)).clamp(min=1) / sizes_S * found_S
    # one of the `same` was spent on the weight, and the sample itself is not among them: two of its class are missing
    others_left_S = sizes_S / (sizes_S - 2).clamp(min=1)
    same_S = by_class(same_Q * (same_Q - 1)) / (weight_S - 1).clamp(min=1) * others_left_S
    other_S = by_class(same_Q * other_Q) / weight_S.clamp(min=1)
    shares_S = density_S / density_S.sum().clamp(min=1e-12) / (num_neighbours - 1)
    return Rates(float(same_S @ shares_S), float(other_S @ shares_S), int(used_S.sum()), num_labelled, num_samples)


def jackknife_error(others: Sequence[float]) -> float | None:
    """How far off an estimate may be by chance, from estimates that each leave one class out; None if they fail."""
    if not others or not np.isfinite(others).all():
        return None
    count = len(others)
    deviation = np.sqrt((count - 1) / count * np.square(np.array(others) - np.mean(others)).sum())
    return float(stdtrit(count - 1, (1 + SURENESS) / 2) * deviation)


# By k-means, as in the paper ---------------------------------------------------------------------------------


def estimate_like_the_paper(curve: Sequence[Score], num_seen: int, reassign: bool = True) -> Estimate:
    """The mean of the ten k whose clusters fit the labelled samples best."""

    def fit(score: Score) -> float:
        return score.reassigned if reassign else score.accuracy

    if len(curve) < TOP:
        raise UserError(
            f"the paper's estimate is the mean of {TOP} values of k: {named('max_classes')} leaves {len(curve)}"
        )
    best = [score.k for score in sorted(curve, key=fit, reverse=True)[:TOP]]
    details = {"reassign": reassign, "best": sorted(best), "lowest_possible": num_seen + (TOP - 1) / 2}
    return Estimate(round(np.mean(best)), min(best), max(best), "paper", num_seen, tuple(curve), details)


def score_counts(
    features_ND: Tensor, labels_L: Tensor, counts: Sequence[int], source: Generator, runs: int = RUNS
) -> Iterator[Score]:
    """k-means for every k, judged by the labelled samples: means over the runs."""
    if counts[-1] > len(features_ND):
        raise UserError(f"{counts[-1]} clusters of {len(features_ND)} samples: {named('max_classes')} must be smaller")
    labelled_LD, labels = features_ND[: len(labels_L)], labels_L.cpu().numpy()
    for k, found in zip(counts, kmeans_sweep(features_ND, counts, source, runs), strict=True):
        clusters_RL = found.labels[:, : len(labels_L)].cpu().numpy()
        distances_RLK = squared_distances(labelled_LD, found.centres).cpu().numpy()
        fits = [fit_to_labels(*run, labels) for run in zip(clusters_RL, distances_RLK, strict=True)]
        yield Score(k, *np.mean(fits, axis=0).tolist())


def fit_to_labels(clusters_L: np.ndarray, distances_LK: np.ndarray, labels_L: np.ndarray) -> tuple[float, float]:
    """Per cent of the labelled samples in the cluster of their class, without and with reassignment."""
    num_seen, num_clusters = int(labels_L.max()) + 1, distances_LK.shape[1]
    counts_SK = np.zeros((num_seen, num_clusters), dtype=np.int64)
    np.add.at(counts_SK, (labels_L, clusters_L), 1)
    matched_S = matched_columns(counts_SK)
    is_matched_L = np.isin(clusters_L, matched_S)
    nearest_matched_L = matched_S[distances_LK[:, matched_S].argmin(axis=1)]
    right_L = clusters_L == matched_S[labels_L]
    right_after_L = np.where(is_matched_L, clusters_L, nearest_matched_L) == matched_S[labels_L]
    return 100 * float(right_L.mean()), 100 * float(right_after_L.mean())
