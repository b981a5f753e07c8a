"""Accuracies compared with brute force over every matching, NMI and ARI with scikit-learn."""

from collections.abc import Iterator
from itertools import permutations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from openworld.ops.metrics import (
    BY_COUNTS,
    accuracy,
    adjusted_rand_index,
    confusion_matrix,
    normalised_mutual_information,
    novel_as_seen,
)

Scores = tuple[float | None, float | None, float | None]


def every_matching(truth: np.ndarray, predicted: np.ndarray) -> Iterator[np.ndarray]:
    """Yield which samples are right, for every one-to-one matching of the classes with the predicted ids."""
    classes, ids = sorted(set(truth)), sorted(set(predicted))
    ids += [None] * (len(classes) - len(ids))
    for chosen in permutations(ids, len(classes)):
        class_of = dict(zip(chosen, classes, strict=True))
        yield np.array([class_of.get(p) == t for t, p in zip(truth, predicted, strict=True)], dtype=bool)


def best_matchings(truth: np.ndarray, predicted: np.ndarray) -> list[np.ndarray]:
    matchings = list(every_matching(truth, predicted))
    most = max(right.sum() for right in matchings)
    return [right for right in matchings if right.sum() == most]


def per_cent(right: np.ndarray) -> float | None:
    return round(100 * right.mean(), 6) if len(right) else None


def brute_force(truth: np.ndarray, predicted: np.ndarray, num_seen: int, protocol: str) -> set[Scores]:
    """Return (seen, novel, all) for every best matching: with gcd, seen and novel depend on the matching."""
    is_novel = truth >= num_seen
    best = best_matchings(truth, predicted)
    if protocol == "gcd":
        return {(per_cent(right[~is_novel]), per_cent(right[is_novel]), per_cent(right)) for right in best}
    novel_truth, novel_predicted = truth[is_novel], predicted[is_novel]
    may_count = novel_predicted >= (num_seen if protocol == "trssl" else 0)
    right = np.zeros(len(novel_truth), dtype=bool)
    right[may_count] = best_matchings(novel_truth[may_count], novel_predicted[may_count])[0]
    return {(per_cent((predicted == truth)[~is_novel]), per_cent(right), per_cent(best[0]))}


NUM_IDS = 1000
ODD_IDS = np.array([7, 100, 998, 999])


def scores(truth, predicted, num_classes: int, num_seen: int, protocol: str) -> Scores:
    counts = confusion_matrix(np.asarray(truth), np.asarray(predicted), num_classes, NUM_IDS)
    result = accuracy(counts, num_seen, protocol)
    return tuple(None if value is None else round(value, 6) for value in (result.seen, result.novel, result.all))


def test_a_confusion_matrix_has_a_row_for_each_class_and_a_column_for_each_id():
    counts = confusion_matrix(np.array([0, 2, 2, 2]), np.array([1, 5, 5, 0]), num_classes=4, num_ids=7)
    expected = np.zeros((4, 7), dtype=int)
    expected[0, 1], expected[2, 5], expected[2, 0] = 1, 2, 1
    assert np.array_equal(counts, expected)


def test_the_matrices_of_the_parts_sum_to_that_of_the_whole():
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(4, size=60), rng.choice([0, 1, *ODD_IDS], size=60)
    parts = [slice(0, 7), slice(7, 8), slice(8, 60)]
    counts = sum(confusion_matrix(truth[part], predicted[part], 4, NUM_IDS) for part in parts)
    assert np.array_equal(counts, confusion_matrix(truth, predicted, 4, NUM_IDS))


@pytest.mark.parametrize("protocol", BY_COUNTS)
@pytest.mark.parametrize("seed", range(5))
def test_ids_that_nobody_predicts_change_no_score(seed, protocol):
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(5, size=40), rng.integers(6, size=40)
    predicted[:2] = 5  # the last id occurs
    follows = rng.random(40) < 0.8  # makes one matching the best: of several best ones, any may be chosen
    predicted[follows] = truth[follows]
    narrow, wide = (confusion_matrix(truth, predicted, 5, num_ids) for num_ids in (6, 60))
    assert accuracy(wide, 2, protocol) == accuracy(narrow, 2, protocol)
    assert novel_as_seen(wide, 2) == novel_as_seen(narrow, 2)
    assert normalised_mutual_information(wide) == pytest.approx(normalised_mutual_information(narrow))
    assert adjusted_rand_index(wide) == pytest.approx(adjusted_rand_index(narrow))


@pytest.mark.parametrize("protocol", BY_COUNTS)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("num_classes", "num_seen", "ids"),
    [
        pytest.param(4, 2, range(4), id="as many clusters as novel classes"),
        pytest.param(4, 2, [0, 1, *ODD_IDS], id="more clusters, odd ids"),
        pytest.param(5, 2, [0, 1, 999], id="fewer clusters"),
        pytest.param(4, 0, ODD_IDS, id="nothing seen"),
        pytest.param(3, 3, range(3), id="nothing novel"),
        pytest.param(4, 2, [0, 1], id="no cluster at all"),
    ],
)
def test_accuracy_against_brute_force(num_classes, num_seen, ids, seed, protocol):
    rng = np.random.default_rng(seed)
    truth, predicted = rng.integers(num_classes, size=20), rng.choice(ids, size=20)
    if seed % 2:  # one class is empty
        truth[truth == num_classes - 1] = 0
    ours = scores(truth, predicted, num_classes, num_seen, protocol)
    assert ours in brute_force(truth, predicted, num_seen, protocol)
    if protocol == "trssl" and None not in ours:
        assert ours[2] >= min(ours[0], ours[1])


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [("trssl", (100.0, 0.0, 40.0)), ("orca", (100.0, 66.666667, 40.0)), ("gcd", None)],
)
def test_everything_predicted_as_one_seen_class(protocol, expected):
    # Two samples of the seen class 0; three novel samples, two of class 1 and one of class 2.
    truth = [0, 0, 1, 1, 2]
    ours = scores(truth, [0] * 5, 3, 1, protocol)
    assert ours in ([expected] if expected else [(100.0, 0.0, 40.0), (0.0, 66.666667, 40.0)])


@pytest.mark.parametrize("protocol", BY_COUNTS)
def test_perfect_up_to_the_names_of_the_clusters(protocol):
    truth = np.array([0, 1, 2, 2, 3, 4])
    predicted = np.array([0, 1, 999, 999, 7, 100])
    assert scores(truth, predicted, 5, 2, protocol) == (100.0, 100.0, 100.0)


@pytest.mark.parametrize("protocol", BY_COUNTS)
def test_where_there_is_no_sample_there_is_no_accuracy(protocol):
    assert scores([0, 1, 1], [0, 1, 0], 3, 2, protocol) == (66.666667, None, 66.666667)
    assert scores([1, 1], [5, 5], 2, 1, protocol) == (None, 100.0, 100.0)
    assert scores(np.array([], int), np.array([], int), 2, 1, protocol) == (None, None, None)


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ValueError, match="lenient"):
        accuracy(np.eye(2, dtype=int), 1, "lenient")


@pytest.mark.parametrize("seed", range(20))
def test_nmi_and_ari_against_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    num_classes, num_ids = rng.integers(1, 7, size=2)
    truth, predicted = rng.integers(num_classes, size=60), rng.integers(num_ids, size=60)
    follows = rng.random(60) < rng.random()
    predicted[follows] = truth[follows] * 100 + 7
    counts = confusion_matrix(truth, predicted, num_classes, NUM_IDS)
    assert normalised_mutual_information(counts) == pytest.approx(normalized_mutual_info_score(truth, predicted))
    assert adjusted_rand_index(counts) == pytest.approx(adjusted_rand_score(truth, predicted))


@pytest.mark.parametrize("predicted", [[3, 3, 3], [0, 1, 2]])
def test_nmi_and_ari_of_a_single_class(predicted):
    counts = confusion_matrix(np.zeros(3, int), np.array(predicted), 1, num_ids=4)
    assert normalised_mutual_information(counts) == normalized_mutual_info_score([0, 0, 0], predicted)
    assert adjusted_rand_index(counts) == adjusted_rand_score([0, 0, 0], predicted)


def test_nmi_and_ari_of_nothing():
    nothing = np.zeros((3, 3), dtype=int)
    assert normalised_mutual_information(nothing) is None
    assert adjusted_rand_index(nothing) is None


def test_novel_as_seen():
    truth, predicted = np.array([0, 0, 1, 2, 2, 2]), np.array([0, 9, 0, 0, 9, 8])
    assert novel_as_seen(confusion_matrix(truth, predicted, 3, num_ids=10), 1) == 50.0
    assert novel_as_seen(confusion_matrix(truth[:2], predicted[:2], 3, num_ids=10), 1) is None
