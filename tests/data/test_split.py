"""Which classes are seen and which images keep their label."""

import hashlib
import math

import numpy as np
import pytest

from openworld.core.config import Problem
from openworld.core.errors import UserError
from openworld.data.split import Split, make_split


def labels_of(*sizes: int) -> np.ndarray:
    """Return labels for classes of the given sizes, in random order."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


@pytest.mark.parametrize(
    ("num_classes", "novel", "num_seen"), [(37, 50, 19), (10, 50, 5), (100, 50, 50), (10, 30, 7), (10, 0, 10)]
)
def test_number_of_seen_classes(num_classes, novel, num_seen):
    split = make_split(labels_of(*[4] * num_classes), num_classes, Problem(novel=novel), seed=0)
    assert (split.num_seen, split.num_classes) == (num_seen, num_classes)


@pytest.mark.parametrize(
    ("size", "labelled", "expected"),
    [(500, 10, 50), (21, 10, 3), (5, 10, 1), (1, 10, 1), (8, 50, 4), (9, 50, 5), (6, 100, 6), (500, 32.2, 161)],
)
def test_labelled_images_of_a_class_are_rounded_up_and_at_least_one(size, labelled, expected):
    labels = labels_of(size, 10, 10, 10)
    split = make_split(labels, 4, Problem(labelled=labelled), seed=0)
    assert (labels[list(split.labelled)] == 0).sum() == expected


def test_parts_are_disjoint_and_complete_and_only_seen_classes_are_labelled():
    labels = labels_of(30, 20, 25, 15)
    split = make_split(labels, 4, Problem(), seed=0)
    assert sorted(split.labelled + split.unlabelled) == list(range(90))
    assert set(labels[list(split.labelled)]) == {0, 1}
    assert set(labels[list(split.unlabelled)]) == {0, 1, 2, 3}
    assert split.class_sizes == (30, 20, 25, 15)


def test_seed_changes_the_choice_but_not_the_counts():
    labels = labels_of(30, 20, 25, 15)
    first, second = (make_split(labels, 4, Problem(labelled=40), seed) for seed in (0, 1))
    assert first.labelled != second.labelled
    assert np.array_equal(np.bincount(labels[list(first.labelled)]), np.bincount(labels[list(second.labelled)]))
    assert first.class_sizes == second.class_sizes


def test_imbalance_is_exponential():
    labels = labels_of(*[100] * 5)
    split = make_split(labels, 5, Problem(imbalance=10), seed=0)
    expected = [math.floor(100 * 10 ** (-number / 4)) for number in range(5)]
    assert list(split.class_sizes) == expected
    kept = labels[list(split.labelled + split.unlabelled)]
    assert np.bincount(kept).tolist() == expected


def test_an_imbalance_that_leaves_a_class_empty_is_refused():
    assert min(make_split(labels_of(*[10] * 6), 6, Problem(imbalance=10), seed=0).class_sizes) == 1
    with pytest.raises(UserError, match="--imbalance 1000 leaves no image of class 2, which has 10; use a smaller"):
        make_split(labels_of(*[10] * 6), 6, Problem(imbalance=1000), seed=0)


def test_in_novel_class_discovery_no_unlabelled_image_is_of_a_seen_class():
    labels = labels_of(30, 20, 25, 15)
    for labelled, kept in ((100, 50), (10, 5)):
        split = make_split(labels, 4, Problem(task="ncd", labelled=labelled), seed=0)
        assert len(split.labelled) == kept
        assert set(labels[list(split.unlabelled)]) == {2, 3}
        assert split.class_sizes[2:] == (25, 15)
        assert sum(split.class_sizes[:2]) == kept  # the other images of the seen classes are left out
    open_world = make_split(labels, 4, Problem(labelled=10), seed=0)
    assert split.labelled == open_world.labelled


def test_json_round_trip_keeps_the_split_and_the_fingerprint():
    split = make_split(labels_of(30, 20, 25, 15), 4, Problem(), seed=3)
    assert Split.from_json(split.to_json(fingerprint="abc")) == (split, {"fingerprint": "abc"})


def test_the_same_on_any_machine():
    # The expected value comes from a second implementation that uses only hashlib and json.
    split = make_split(np.arange(40) % 4, 4, Problem(labelled=25), seed=0)
    digest = hashlib.sha256(split.to_json(fingerprint="abc").encode()).hexdigest()
    assert digest == "c101e2d2207f33fd37194ca0385f559cae67f7b1074b3052410391b7cef09dea"


def test_same_input_same_output_and_the_input_stays_as_it_was():
    labels = labels_of(30, 20, 25, 15)
    before = labels.copy()
    np.random.seed(1)
    first = make_split(labels, 4, Problem(imbalance=5), seed=0)
    np.random.seed(2)
    assert make_split(labels, 4, Problem(imbalance=5), seed=0) == first
    assert np.array_equal(labels, before)


@pytest.mark.parametrize(
    ("sizes", "problem", "message"),
    [
        ((5, 5), Problem(novel=50), "at least 2"),
        ((5, 5, 5), Problem(novel=0, labelled=100), "labelled.*--novel"),
        ((5, 0, 5, 5), Problem(), "class 1"),
    ],
    ids=["one seen class", "everything labelled", "a seen class without images"],
)
def test_impossible_problems_are_refused(sizes, problem, message):
    with pytest.raises(UserError, match=message):
        make_split(labels_of(*sizes), len(sizes), problem, seed=0)
