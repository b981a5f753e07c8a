"""The number of classes estimated as in the paper, by k-means: by hand, over all matchings, and on known blobs."""

import itertools

import numpy as np
import pytest
from labelled_blobs import OVERLAPPING, blobs, with_labels
from torch import Tensor

from openworld.core.errors import UserError
from openworld.ops.class_count import Score, estimate_like_the_paper, fit_to_labels, score_counts
from openworld.ops.kmeans import kmeans_sweep
from openworld.ops.rng import generator


def fit_by_hand(clusters: list[int], centres: Tensor, samples: Tensor, labels: list[int]) -> tuple[float, float]:
    """Try all matchings. Then move every sample of an unmatched cluster to the nearest matched cluster."""

    def right(clusters: list[int], matching: tuple[int, ...]) -> float:
        return 100 * float(np.mean([matching[label] == own for label, own in zip(labels, clusters, strict=True)]))

    matchings = list(itertools.permutations(range(len(centres)), max(labels) + 1))
    best = max(matchings, key=lambda matching: right(clusters, matching))
    moved = [
        own if own in best else min(best, key=lambda k: float((sample - centres[k]).norm()))
        for own, sample in zip(clusters, samples, strict=True)
    ]
    return right(clusters, best), right(moved, best)


def test_scores_are_those_of_a_search_over_all_matchings():
    features, labels = with_labels(*blobs(6, size=30, distance=OVERLAPPING), num_seen=3, each=10)
    counts = range(3, 9)
    scores = list(score_counts(features, labels, counts, generator(0, "kmeans"), runs=2))
    clusterings = kmeans_sweep(features, counts, generator(0, "kmeans"), runs=2)
    assert [score.k for score in scores] == list(counts)
    for score, clustering in zip(scores, clusterings, strict=True):
        runs = zip(clustering.labels[:, :30].tolist(), clustering.centres, strict=True)
        fits = [fit_by_hand(*run, features[:30], labels.tolist()) for run in runs]
        assert (score.accuracy, score.reassigned) == pytest.approx(tuple(np.mean(fits, axis=0)))
    assert any(score.reassigned != score.accuracy for score in scores)


def fit(clusters: list[int], distances: list[list[float]], labels: list[int]) -> tuple[float, float]:
    return fit_to_labels(np.array(clusters), np.array(distances), np.array(labels))


def test_clusters_that_are_the_classes_fit_whatever_their_numbers():
    near = 1 - np.eye(3)[[2, 2, 0, 1]]
    assert fit([2, 2, 0, 1], near, [0, 0, 1, 2]) == (100, 100)


def test_a_class_in_two_clusters_is_put_together_by_reassignment():
    """The second half of class 0 is its own cluster, nearer to the first half than to class 1."""
    distances = [[0, 9, 9]] * 3 + [[1, 9, 0]] * 2 + [[9, 0, 9]] * 3
    assert fit([0, 0, 0, 2, 2, 1, 1, 1], distances, [0] * 5 + [1] * 3) == (75, 100)


def test_reassignment_may_go_wrong_and_does_not_touch_matched_clusters():
    distances = [[0, 9, 9]] * 3 + [[9, 1, 0]] + [[9, 0, 9]] * 4
    labels = [0, 0, 0, 0, 0, 1, 1, 1]  # one of class 0 is in an unmatched cluster, one in the cluster of class 1
    assert fit([0, 0, 0, 2, 1, 1, 1, 1], distances, labels) == (75, 75)


def curve(reassigned: dict[int, float], accuracy: dict[int, float] | None = None) -> list[Score]:
    return [Score(k, (accuracy or reassigned)[k], value) for k, value in reassigned.items()]


def test_the_papers_estimate_is_the_mean_of_the_ten_best():
    best = [8, 9, 11, 12, 14, 15, 16, 20, 30, 40]
    estimate = estimate_like_the_paper(curve({k: 90.0 + (k in best) for k in range(5, 60)}), num_seen=5)
    assert (estimate.num_classes, estimate.low, estimate.high) == (18, 8, 40)  # 17.5, to an even number
    assert estimate.details == {"reassign": True, "best": best, "lowest_possible": 9.5}
    assert (estimate.estimator, estimate.num_seen, len(estimate.curve)) == ("paper", 5, 55)


def test_where_nothing_but_the_seen_classes_is_found_the_papers_estimate_is_its_lowest():
    estimate = estimate_like_the_paper(curve({k: 100.0 - k for k in range(4, 50)}), num_seen=4)
    assert estimate.details["best"] == list(range(4, 14))
    assert np.mean(estimate.details["best"]) == estimate.details["lowest_possible"] == 8.5


def test_without_reassignment_the_other_curve_decides():
    scores = curve(dict.fromkeys(range(5, 30), 90.0) | {29: 99.0}, {k: 100.0 - abs(k - 20) for k in range(5, 30)})
    plain = estimate_like_the_paper(scores, num_seen=5, reassign=False)
    assert plain.details["best"] in (list(range(15, 25)), list(range(16, 26)))
    assert plain.details["reassign"] is False
    assert 29 in estimate_like_the_paper(scores, num_seen=5).details["best"]


def test_the_paper_finds_blobs():
    features, labels = with_labels(*blobs(12, size=50), num_seen=6, each=20)
    scores = list(score_counts(features, labels, range(6, 31), generator(0, "kmeans")))
    accuracies = {score.k: score.accuracy for score in scores}
    assert accuracies[12] == 100
    assert accuracies[6] < 90
    assert accuracies[30] < 99


def test_more_clusters_than_samples_are_refused():
    features, labels = with_labels(*blobs(6, size=5), num_seen=3, each=3)
    with pytest.raises(UserError, match=r"30 samples .*31 clusters.*--max-classes"):
        next(score_counts(features, labels, range(3, 32), generator(0, "kmeans")))
