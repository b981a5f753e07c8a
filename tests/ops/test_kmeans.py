"""k-means for many k: against scikit-learn, by hand, and on hostile input."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from torch import Tensor

from openworld.ops.kmeans import kmeans_sweep, means_of_clusters, squared_distances
from openworld.ops.rng import generator


def blobs(count: int = 600, classes: int = 12, width: int = 5, offset: float = 0.0) -> Tensor:
    source = generator(0, "blobs")
    centres = 3 * torch.randn(classes, width, generator=source)
    return centres[torch.arange(count) % classes] + torch.randn(count, width, generator=source) + offset


def sweep(features: Tensor, counts, seed: int = 0, runs: int = 3):
    return list(kmeans_sweep(features, counts, generator(seed, "kmeans"), runs))


def test_inertia_is_that_of_scikit_learn_within_a_per_cent():
    features, counts = blobs(), range(2, 25)
    theirs = [
        np.mean([KMeans(count, n_init=1, random_state=seed).fit(features).inertia_ for seed in range(3)])
        for count in counts
    ]
    ours = [clustering.inertia.mean().item() for clustering in sweep(features, counts)]
    assert np.mean(np.array(ours) / theirs) < 1.01


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_labels_centres_and_inertia_belong_together(offset):
    features = blobs(offset=offset)
    for count, clustering in zip((3, 12, 20), sweep(features, (3, 12, 20)), strict=True):
        assert clustering.centres.shape == (3, count, 5)
        for centres, labels, inertia in zip(clustering.centres, clustering.labels, clustering.inertia, strict=True):
            distances = torch.cdist(features.double(), centres.double()).square()
            assert torch.equal(distances.argmin(dim=1), labels)
            assert inertia.item() == pytest.approx(distances.min(dim=1).values.sum().item(), rel=1e-3)
            for cluster in range(count):
                mean = features[labels == cluster].mean(dim=0)
                torch.testing.assert_close(centres[cluster], mean, atol=0.2, rtol=0)  # settled, not to the last bit


def test_more_clusters_never_cost_more():
    inertia = torch.stack([clustering.inertia for clustering in sweep(blobs(), range(1, 40))])
    assert (inertia[1:] <= inertia[:-1] * (1 + 1e-5)).all()


def test_one_cluster_is_the_mean_and_as_many_as_samples_cost_nothing():
    features = blobs(30)
    one, *_, all_of_them = sweep(features, range(1, 31))
    torch.testing.assert_close(one.centres[0, 0], features.mean(dim=0), atol=1e-5, rtol=0)
    assert all_of_them.inertia.max() < 1e-3


def test_draws_decide_and_runs_differ():
    features = torch.rand(200, 3, generator=generator(0, "features"))
    first, again, other = (sweep(features, (9,), seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.labels, other.labels)
    assert not torch.equal(first.labels[0], first.labels[1])


def test_samples_that_are_all_the_same_give_clusters_of_which_one_is_used():
    clustering = sweep(torch.ones(20, 4), (1, 3))[-1]
    assert clustering.inertia.max() == 0
    assert clustering.centres.isfinite().all()


def test_a_cluster_without_samples_moves_to_the_farthest_one():
    features = torch.tensor([[0.0], [1.0], [10.0]])
    centres = torch.tensor([[[0.0], [99.0]]])
    nearest, labels = squared_distances(features, centres).min(dim=2)
    assert labels.tolist() == [[0, 0, 0]]
    moved = means_of_clusters(features, centres, labels, nearest)
    assert moved[0, 1].item() == 10.0
    assert moved[0, 0].item() == pytest.approx(11 / 3)


@pytest.mark.parametrize("counts", [(0, 1), (3, 2), (2, 2), (5, 21)])
def test_numbers_of_clusters_that_make_no_sense(counts):
    with pytest.raises(ValueError, match=r"must ascend.* 20"):
        sweep(torch.rand(20, 2), counts)
