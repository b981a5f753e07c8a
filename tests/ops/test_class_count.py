"""The number of classes estimated by k-nearest neighbours: by hand, by brute force, and on blobs of known number."""

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from labelled_blobs import APART, OVERLAPPING, blobs, with_labels
from torch import Tensor

from openworld.core.errors import UserError
from openworld.ops import class_count
from openworld.ops.class_count import (
    Estimate,
    Rates,
    Score,
    estimate_by_neighbours,
    jackknife_error,
    labels_nearby,
    measure_rates,
    neighbourhood,
)
from openworld.ops.rng import generator


def draws(features: Tensor, truth: Tensor, num_seen: int, each: int, count: int = 20) -> Iterator[Estimate]:
    """Yield estimates for many random choices of the labelled samples."""
    for seed in range(count):
        yield estimate_by_neighbours(*with_labels(features, truth, num_seen, each, seed))


# By nearest neighbours ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [APART, OVERLAPPING])
@pytest.mark.parametrize(("classes", "num_seen"), [(5, 5), (6, 3), (10, 5), (20, 10), (30, 20)])
def test_classes_without_any_label_are_counted(classes, num_seen, distance):
    estimate = estimate_by_neighbours(*with_labels(*blobs(classes, distance=distance), num_seen, each=60))
    assert estimate.low <= classes <= estimate.high
    assert estimate.num_classes == round(max(estimate.details["exact"], num_seen))
    assert estimate.details["exact"] == pytest.approx(classes, rel=0.1 if distance == APART else 0.25)
    assert estimate.num_seen == num_seen
    assert estimate.estimator == "neighbours"
    confused = estimate.details["other"] / (estimate.details["same"] + estimate.details["other"])
    assert (confused > 0.1) == (distance == OVERLAPPING)


@pytest.mark.parametrize("distance", [APART, OVERLAPPING])
def test_over_draws_of_the_labels_the_estimate_is_right_on_average_and_its_interval_most_times(distance):
    estimates = list(draws(*blobs(12, distance=distance), num_seen=6, each=40))
    assert np.mean([estimate.details["exact"] for estimate in estimates]) == pytest.approx(12, rel=0.04)
    assert np.mean([estimate.low <= 12 <= estimate.high for estimate in estimates]) >= 0.8
    assert max(estimate.high - estimate.low for estimate in estimates) < 12


def test_the_interval_widens_with_fewer_labels():
    def mean_width(each: int) -> float:
        estimates = draws(*blobs(12), num_seen=6, each=each)
        return np.mean([estimate.high - estimate.low for estimate in estimates])

    assert 1.5 * mean_width(80) < mean_width(20)


def test_there_are_never_fewer_classes_than_were_seen():
    estimates = list(draws(*blobs(15), num_seen=15, each=30))
    assert min(estimate.details["exact"] for estimate in estimates) < 14.5
    assert all(15 <= estimate.low <= estimate.num_classes <= estimate.high for estimate in estimates)


def test_with_two_known_classes_nobody_can_say_how_sure():
    estimate = estimate_by_neighbours(*with_labels(*blobs(4), num_seen=2, each=60))
    assert (estimate.num_classes, estimate.low, estimate.high) == (4, 2, None)


def test_where_samples_are_or_how_they_are_scaled_does_not_matter():
    features, labels = with_labels(*blobs(10), num_seen=5, each=40)
    first, moved = (estimate_by_neighbours(changed, labels) for changed in (features, 3 * features + 1))
    assert moved.details == pytest.approx(first.details)


def test_both_ways_to_tell_the_labelled_share_agree_at_the_estimate():
    rates = Rates(same=0.05, other=0.002, num_seen=5, num_labelled=100, num_samples=4000)
    counts = [rates.num_classes(confusion) for confusion in (0.8, 1.0, 1.25)]
    assert 5 < counts[0] < counts[1] < counts[2]
    for k, confusion in zip(counts, (0.8, 1.0, 1.25), strict=True):
        assert rates.by_size(k) == pytest.approx(rates.by_neighbours(k, confusion))


@pytest.mark.parametrize(("same", "other"), [(0.05, 0.03), (0.01, 0.009), (0.0, 0.0), (0.05, 0.02)])
def test_no_count_that_makes_sense_is_infinitely_many(same, other):
    """The proportions never agree, or only for fewer classes than are seen, or for more than are possible."""
    rates = Rates(same, other, num_seen=5, num_labelled=100, num_samples=4000)
    assert rates.num_classes() == np.inf


def test_fewer_than_are_seen_may_be_chance_where_classes_keep_to_themselves():
    assert Rates(0.02, 0.0, num_seen=5, num_labelled=100, num_samples=4000).num_classes() < 5


def test_the_interval_allows_for_novel_classes_that_are_nearer_or_farther_than_seen_ones(monkeypatch):
    intervals = []
    for confusion in ((1.0, 1.0), (0.5, 2.0)):
        monkeypatch.setattr(class_count, "CONFUSION", confusion)
        estimate = estimate_by_neighbours(*with_labels(*blobs(12, distance=OVERLAPPING), num_seen=6, each=100))
        intervals.append((estimate.low, estimate.high))
        fields = ("same", "other", "num_seen", "num_labelled", "num_samples")
        rates = Rates(**{name: estimate.details[name] for name in fields})
        assert estimate.details["exact"] == rates.num_classes()
        assert estimate.low <= round(rates.num_classes(confusion[0])) <= round(rates.num_classes(confusion[1]))
        assert round(rates.num_classes(confusion[1])) <= estimate.high
    assert intervals[1][0] < intervals[0][0]
    assert intervals[0][1] < intervals[1][1]


# Nearby samples ----------------------------------------------------------------------------------------------


def test_labels_nearby_are_those_of_a_brute_force_count(monkeypatch):
    monkeypatch.setattr(class_count, "QUERY_CHUNK", 7)  # small, so that there are several chunks
    features, labels = with_labels(*blobs(6, size=20, distance=OVERLAPPING), num_seen=3, each=8)
    counts, classes = labels_nearby(features, labels, num_neighbours=15)
    assert torch.equal(classes, labels)
    assert counts.sum() > 100
    for sample, found in enumerate(counts):
        distances = (features.double() - features[sample]).square().sum(dim=1)
        near = [other for other in distances.argsort().tolist() if other != sample][:15]
        assert found.tolist() == [sum(n < 24 and labels[n] == label for n in near) for label in range(3)]


def test_a_sample_is_not_its_own_neighbour_even_among_equals():
    labels = torch.tensor([0, 0, 0, 1, 1])
    counts, _ = labels_nearby(torch.ones(9, 4), labels, num_neighbours=8)  # all other samples
    assert counts.tolist() == [[2, 2]] * 3 + [[3, 1]] * 2


def test_of_very_many_labelled_samples_some_are_asked_from_first_to_last(monkeypatch):
    features, labels = with_labels(*blobs(6, size=20), num_seen=3, each=8)
    everyone, _ = labels_nearby(features, labels, num_neighbours=15)
    monkeypatch.setattr(class_count, "MOST_QUERIES", 10)
    counts, classes = labels_nearby(features, labels, num_neighbours=15)
    assert torch.equal(counts, everyone[::3])
    assert torch.equal(classes, labels[::3])


@pytest.mark.parametrize(
    ("num_samples", "num_seen", "expected"), [(50_000, 50, 100), (1_000, 10, 20), (300, 10, 10), (6, 2, 5)]
)
def test_neighbourhoods_are_a_fraction_of_a_class(num_samples, num_seen, expected):
    assert neighbourhood(num_samples, num_seen) == expected


def rates_of(features: Tensor, labels: Tensor, left_out: int | None = None) -> Rates:
    counts, classes = labels_nearby(features, labels, num_neighbours=30)
    return measure_rates(counts, classes, torch.bincount(labels), len(features), 30, left_out)


@pytest.mark.parametrize("left_out", range(4))
def test_leaving_a_class_out_is_taking_its_labels_away(left_out):
    features, labels = with_labels(*blobs(6, size=40, distance=OVERLAPPING), num_seen=4, each=[9, 12, 7, 10])
    is_kept = labels != left_out
    order = torch.cat([is_kept.nonzero()[:, 0], (~is_kept).nonzero()[:, 0], torch.arange(len(labels), len(features))])
    kept = labels[is_kept]
    without = rates_of(features[order], kept - (kept > left_out).long())
    assert vars(rates_of(features, labels, left_out)) == pytest.approx(vars(without))
    assert without.num_seen == 3


def test_rates_are_those_of_the_formula_written_as_loops():
    features, labels = with_labels(*blobs(6, size=40, distance=OVERLAPPING), num_seen=4, each=[9, 12, 2, 10])
    counts, _ = labels_nearby(features, labels, num_neighbours=30)
    density = same = other = 0.0
    for label, size in ((0, 9), (1, 12), (3, 10)):  # class 2 has too few labels
        rows = [row for row, own in zip(counts.tolist(), labels.tolist(), strict=True) if own == label]
        found = sum(row[label] for row in rows)
        of_labels = found / size / size
        density += of_labels
        same += of_labels * sum(row[label] * (row[label] - 1) for row in rows) / (found - 1) * size / (size - 2)
        other += of_labels * sum(row[label] * (sum(row) - row[label]) for row in rows) / found
    expected = Rates(same / density / 29, other / density / 29, num_seen=4, num_labelled=33, num_samples=240)
    assert vars(rates_of(features, labels)) == pytest.approx(vars(expected))


def test_a_class_with_two_labels_is_not_asked_but_found():
    counts = torch.tensor([[2.0, 1.0, 1.0]] * 3 + [[1.0, 2.0, 0.0]] * 3 + [[0.0, 0.0, 1.0]] * 2)
    labels, sizes = torch.tensor([0] * 3 + [1] * 3 + [2] * 2), torch.tensor([3, 3, 2])

    def rates(counts: Tensor) -> Rates:
        return measure_rates(counts, labels, sizes, num_samples=40, num_neighbours=5, left_out=None)

    asked_in_vain, not_found = counts.clone(), counts.clone()
    asked_in_vain[6:] = 5.0
    not_found[:, 2] = 0.0
    assert rates(asked_in_vain) == rates(counts)
    assert rates(not_found).other < rates(counts).other
    assert (rates(counts).num_seen, rates(counts).num_labelled) == (3, 8)


def test_the_jackknife_is_that_of_the_textbook():
    """For a mean, the jackknife gives the standard error of the mean."""
    values = np.array([3.0, 5.0, 4.0, 8.0, 6.0])
    others = [np.delete(values, number).mean() for number in range(5)]
    reach = 2.1318 * values.std(ddof=1) / np.sqrt(5)  # Student's t of 4 degrees of freedom, 5% at each end
    assert jackknife_error(others) == pytest.approx(reach, rel=1e-4)


@pytest.mark.parametrize("others", [[], [4.0, float("inf"), 5.0]])
def test_without_estimates_to_compare_there_is_no_error_to_tell(others):
    assert jackknife_error(others) is None


# What cannot be estimated ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("each", "answer"),
    [
        ([20], "only one class has labels"),
        ([20, 2, 1], "fewer than 2 classes have 3"),
        ([2, 2, 2], "fewer than 2 classes have 3"),
    ],
)
def test_too_few_labels_are_refused(each, answer):
    with pytest.raises(UserError, match=answer):
        estimate_by_neighbours(*with_labels(*blobs(6, size=40), len(each), each))


def test_a_class_with_too_few_labels_is_no_obstacle():
    estimate = estimate_by_neighbours(*with_labels(*blobs(10), num_seen=5, each=[60, 60, 60, 60, 1]))
    assert estimate.num_seen == 5
    assert estimate.high >= 8


def test_classes_that_lie_together_with_others_are_refused():
    """The two seen classes overlap in one cluster: where one is dense, the other is just as near."""
    truth = torch.arange(800) % 4
    features = torch.randn(800, 8, generator=generator(0, "noise"))
    features[truth < 2] *= 0.1
    with pytest.raises(UserError, match=r"cannot be estimated .*label more"):
        estimate_by_neighbours(*with_labels(features, truth, num_seen=2, each=60))


def test_noise_is_refused_or_left_open():
    for seed in range(10):
        noise = torch.randn(1000, 16, generator=generator(seed, "noise"))
        with contextlib.suppress(UserError):
            estimate = estimate_by_neighbours(*with_labels(noise, torch.arange(1000) % 10, 5, each=20, seed=seed))
            assert not estimate.how_sure().startswith(("well", "roughly")), estimate


def test_labelled_samples_that_find_no_other_of_their_class_tell_nothing():
    with pytest.raises(UserError, match="cannot be estimated"):
        estimate_by_neighbours(*with_labels(*blobs(10, size=1000), num_seen=5, each=3))


def test_it_does_not_matter_that_some_classes_have_more_labels_than_others():
    features, truth = blobs(10)
    exact = [
        estimate_by_neighbours(*with_labels(features, truth, 5, [60, 30, 30, 20, 10], seed)).details["exact"]
        for seed in range(10)
    ]
    assert np.mean(exact) == pytest.approx(10, rel=0.15)


# Texts for users ---------------------------------------------------------------------------------------------


PLAIN = {"exact": 10.0, "num_samples": 1000, "num_labelled": 100}
"""Details that raise no doubt."""


@pytest.mark.parametrize(
    ("estimate", "text", "how_sure"),
    [
        (
            Estimate(10, 9, 11, "neighbours", 5, (), PLAIN),
            "10 classes (9 to 11), 5 of them novel",
            "well determined: plus or minus 10%",
        ),
        (
            Estimate(20, 16, 24, "neighbours", 5, (), PLAIN),
            "20 classes (16 to 24), 15 of them novel",
            "roughly determined: plus or minus 20%",
        ),
        (
            Estimate(10, 7, 13, "neighbours", 10, (), PLAIN),
            "10 classes (7 to 13), 0 of them novel",
            "poorly determined: plus or minus 30%",
        ),
        (
            Estimate(4, 2, None, "neighbours", 2, (), {}),
            "4 classes (2 or more), 2 of them novel",
            "unknown: there are too few",
        ),
        (
            Estimate(18, 8, 40, "paper", 5, (), {}),
            "18 classes (8 to 40), 13 of them novel",
            "never below 9.5",
        ),
    ],
)
def test_an_estimate_says_how_many_and_how_sure(estimate, text, how_sure):
    assert text in estimate.text()
    assert how_sure in estimate.how_sure()


def test_it_says_if_there_may_be_no_novel_class():
    none, some = (estimate_by_neighbours(*with_labels(*blobs(classes), 5, each=60)) for classes in (5, 10))
    assert none.how_sure().endswith("there may be no novel class")
    assert "novel" not in some.how_sure()


def test_it_says_if_only_labelled_samples_are_of_seen_classes():
    features, truth = blobs(10)
    known = truth < 5
    ordered, labels = with_labels(features[known], truth[known], 5, each=30)
    mixed = estimate_by_neighbours(torch.cat([ordered, features[~known]]), labels)
    apart = estimate_by_neighbours(torch.cat([ordered[: len(labels)], features[~known]]), labels)
    assert "hardly any" not in mixed.how_sure()
    assert "hardly any unlabelled sample is of a seen class" in apart.how_sure()
    assert "a novel class has about 29 samples" in apart.how_sure()


def test_an_estimate_is_written_with_its_curve():
    estimate = Estimate(10, 9, None, "paper", 5, (Score(5, 80.0, 90.0),), {"exact": 9.7})
    assert estimate.to_json() == {
        "num_classes": 10,
        "low": 9,
        "high": None,
        "estimator": "paper",
        "num_seen": 5,
        "curve": ({"k": 5, "accuracy": 80.0, "reassigned": 90.0},),
        "details": {"exact": 9.7},
    }
