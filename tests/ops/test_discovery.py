"""Classes that are discovered in good features."""

import pytest
import torch
import torch.nn.functional as F
from clustered_blobs import blobs, even, share_found, split

from openworld.ops.clusters import class_means, cluster, whitened, whitening
from openworld.ops.discovery import discover
from openworld.ops.rng import generator
from openworld.ops.whitening import within_class_whitening

UNEVEN = [300, 300, 300, 60, 300, 300, 60, 60]
"""Sizes of eight classes, of which the first four are seen."""


def found(labelled, labels, unlabelled, prior, trust: float = 1.0):
    return discover(labelled, labels, unlabelled, prior, generator(0, "clusters"), trust)


@pytest.mark.slow
def test_classes_with_and_without_labels_are_found():
    labelled, labels, unlabelled, truth = split(*blobs([100] * 10), num_seen=5, each=10)
    result = found(labelled, labels, unlabelled, even(10))
    assert share_found(result.probabilities_UK, truth, num_seen=5) > 0.95
    projected = F.normalize((unlabelled - result.mean_D) @ result.projection_Dd)
    predictions = (projected @ result.centres_Kd.T).argmax(dim=1)
    assert (predictions == result.probabilities_UK.argmax(dim=1)).float().mean() > 0.98
    torch.testing.assert_close(result.centres_Kd.norm(dim=1), torch.ones(10))


@pytest.mark.slow
def test_whitening_by_the_clusters_finds_what_few_labels_do_not_show():
    """Eight directions vary within all classes. Two labels a class are too few to tell which directions these are."""
    samples, kinds = blobs([120] * 10, width=24)
    samples[:, :8] += 0.5 * torch.randn(1200, 8, generator=generator(0, "noise"))
    labelled, labels, unlabelled, truth = split(F.normalize(samples), kinds, num_seen=5, each=2)
    again = found(labelled, labels, unlabelled, even(10)).probabilities_UK
    known, others = (whitened(part, *whitening(labelled, labels, unlabelled)) for part in (labelled, unlabelled))
    once = cluster(known, labels, others, even(10), generator(0, "clusters"))
    assert share_found(again, truth, num_seen=5) > share_found(once, truth, num_seen=5) + 0.1


@pytest.mark.slow
def test_the_sizes_follow_a_prior_that_is_known():
    labelled, labels, unlabelled, _ = split(*blobs(UNEVEN, spread=0.7), num_seen=4, each=20)
    sizes = torch.tensor([280.0, 280, 280, 40, 60, 300, 60, 300])  # the novel ones in another order
    prior = sizes / sizes.sum()
    result = found(labelled, labels, unlabelled, prior)
    torch.testing.assert_close(result.sizes_K[:4], prior[:4], atol=0.02, rtol=0)
    torch.testing.assert_close(result.sizes_K[4:].sort().values, prior[4:].sort().values, atol=0.02, rtol=0)


@pytest.mark.slow
def test_a_prior_that_is_only_assumed_gives_way_if_the_classes_are_uneven():
    labelled, labels, unlabelled, truth = split(*blobs(UNEVEN), num_seen=4, each=20)
    trusted, assumed = (
        share_found(found(labelled, labels, unlabelled, even(8), trust).probabilities_UK, truth, num_seen=4)
        for trust in (1.0, 0.7)
    )
    assert assumed > trusted + 0.05


def test_the_same_source_finds_the_same_classes():
    parts = split(*blobs([40] * 4), num_seen=2, each=5)[:3]
    first, second = (found(*parts, even(4)).probabilities_UK for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("num_classes", [3, 50])
def test_more_classes_than_samples_and_equal_samples_give_finite_vectors(num_classes):
    same = F.normalize(torch.ones(20, 8))
    result = found(same[:4], torch.tensor([0, 0, 1, 1]), same[4:], even(num_classes))
    assert result.centres_Kd.isfinite().all()
    torch.testing.assert_close(result.probabilities_UK.sum(dim=1), torch.ones(16))


def test_a_class_of_prior_0_gets_no_sample_but_a_vector():
    labelled, labels, unlabelled, _ = split(*blobs([40] * 4), num_seen=2, each=5)
    result = found(labelled, labels, unlabelled, torch.tensor([0.25, 0.25, 0.25, 0.25, 0.0]))
    assert float(result.sizes_K.min()) == pytest.approx(0)
    torch.testing.assert_close(result.centres_Kd.norm(dim=1), torch.ones(5))


def test_whitened_classes_have_unit_variance():
    """With all classes known and no floor, the pooled covariance within the classes becomes the identity."""
    samples, kinds = blobs([300] * 3, stretch=2.0, width=6)
    matrix = within_class_whitening(samples, F.one_hot(kinds).float(), samples, floor=0.0)
    within = (samples - class_means(samples, kinds)[kinds]) @ matrix
    torch.testing.assert_close(within.T @ within / len(within), torch.eye(6), atol=1e-3, rtol=0)
