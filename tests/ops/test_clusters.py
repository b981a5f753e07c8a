"""Clusters of features that become classes."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from clustered_blobs import blobs, even, share_found, split
from worlds import cosine_head, training_set

from openworld.nets.features import clustered_head
from openworld.nets.inference import inference_copy
from openworld.nets.network import build_network
from openworld.ops.clusters import class_means, cluster, whitened, whitening
from openworld.ops.kmeans import kmeans_sweep
from openworld.ops.rng import generator


def test_a_head_of_clusters_tells_classes_apart_that_nobody_has_labelled():
    """Six noisy patterns. Three of them have labels."""
    kinds = torch.arange(600) % 6
    patterns = 200 * torch.randint(0, 2, (6, 1, 8, 8), generator=generator(0, "patterns"))
    images = (patterns[kinds] + torch.randint(0, 40, (600, 1, 8, 8), generator=generator(0, "noise"))).to(torch.uint8)
    labelled, unlabelled = (kinds < 3) & (torch.arange(600) < 60), torch.arange(600) >= 60
    data = training_set(
        images[labelled], kinds[labelled], images[unlabelled], torch.full((6,), 1 / 6), num_seen=3, augment="digits"
    )
    network = build_network("small", (1, 8, 8), data.mean, data.std, cosine_head(6), generator(1, "weights"))
    network.train()(images / 255)  # sets the statistics of BatchNorm, trains nothing
    network = inference_copy(network)
    head = clustered_head(network, data, generator(0, "clusters"))
    torch.testing.assert_close(head, F.normalize(head))
    network.head.load_state_dict({"weight": head})
    answers = network(images / 255).argmax(dim=1)
    assert (answers == kinds)[kinds < 3].float().mean() > 0.9
    novel = torch.stack([torch.bincount(answers[kinds == kind], minlength=6) for kind in (3, 4, 5)])
    assert sorted(novel.argmax(dim=1).tolist()) == [3, 4, 5]
    assert torch.equal(head, clustered_head(network, data, generator(0, "clusters")))


def test_classes_of_different_sizes_are_found_by_their_prior():
    """The prior lists the novel classes in another order than the clusters."""
    sizes = [200, 100, 50, 400, 150]
    labelled, labels, unlabelled, kinds = split(*blobs(sizes), num_seen=2, each=20)
    prior = torch.tensor([180.0, 80, 150, 50, 400])
    shares = cluster(labelled, labels, unlabelled, prior / prior.sum(), generator(0, "clusters"))
    assert share_found(shares, kinds, num_seen=2) > 0.95


def test_what_differs_within_seen_classes_does_not_make_clusters():
    """Ten classes, and a direction with more variance than all of them, which only labels show to be irrelevant."""
    samples, kinds = blobs([150] * 10, stretch=4.0)
    labelled, labels, unlabelled, truth = split(samples, kinds, num_seen=5, each=15)
    known, others = (whitened(part, *whitening(labelled, labels, unlabelled)) for part in (labelled, unlabelled))
    shares = cluster(known, labels, others, even(10), generator(0, "clusters"))
    assert share_found(shares, truth, num_seen=5) > 0.9
    (plain,) = kmeans_sweep(samples, [10], generator(0, "clusters"))
    by_kmeans = [plain.labels[0][kinds == kind] for kind in range(10)]
    assert sum((found == found.mode().values).sum() for found in by_kmeans) < 0.7 * len(kinds)


def test_labelled_samples_hold_their_class_against_its_neighbour():
    """A small seen class is close to a large novel one. A centre that can move would leave the seen class."""
    source = generator(0, "neighbours")
    points = F.normalize(torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.7, 0.0], [-1.0, 0.0, 1.0]]))
    kinds = torch.tensor([0] * 60 + [1] * 600 + [2] * 300)
    samples = F.normalize(points[kinds] + 0.15 * torch.randn(len(kinds), 3, generator=source))
    labelled, labels, unlabelled, truth = split(samples, kinds, num_seen=1, each=20)
    prior = torch.tensor([40.0, 600, 300])
    shares = cluster(labelled, labels, unlabelled, prior / prior.sum(), generator(0, "clusters"))
    assert share_found(shares, truth, num_seen=1) > 0.9


def test_a_novel_class_close_to_a_seen_one_is_not_pushed_into_another_novel_one():
    """On a line: a seen class, a novel class that overlaps it, and a wide novel class, as cat, dog and horse.

    The seen class attracts some samples of the middle class. This must not push the middle centre into the third class.
    """
    source = generator(0, "between")
    angles, widths = torch.tensor([0.0, 0.5, 1.4]), torch.tensor([0.25, 0.25, 0.45])
    kinds = torch.arange(3).repeat_interleave(500)
    angle = angles[kinds] + widths[kinds] * torch.randn(len(kinds), generator=source)
    samples = torch.stack([angle.cos(), angle.sin()], dim=1)
    labelled, labels, unlabelled, _ = split(samples, kinds, num_seen=1, each=50)
    prior = torch.tensor([450.0, 500, 500]) / 1450
    shares = cluster(labelled, labels, unlabelled, prior, generator(0, "clusters"))
    means = shares.T @ unlabelled
    found = torch.atan2(means[:, 1], means[:, 0])[1:].sort().values
    torch.testing.assert_close(found, angles[1:], atol=0.1, rtol=0)


def test_one_label_each_and_no_novel_class_are_enough():
    labelled, labels, unlabelled, truth = split(*blobs([60] * 4), num_seen=4, each=1)
    shares = cluster(labelled, labels, unlabelled, even(4), generator(0, "clusters"))
    assert (shares.argmax(dim=1) == truth).float().mean() > 0.9


def test_samples_that_are_all_the_same_are_no_error():
    same = F.normalize(torch.ones(30, 4))
    shares = cluster(same[:4], torch.tensor([0, 0, 1, 1]), same[4:], even(3), generator(0, "clusters"))
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(26))


def test_a_head_has_no_empty_rows_where_samples_are_fewer_than_classes_or_the_prior_gives_one_nothing():
    images = torch.arange(5, dtype=torch.uint8).repeat_interleave(64).view(5, 1, 8, 8) * 40
    data = training_set(images[:2], torch.tensor([0, 1]), images[2:], torch.full((8,), 1 / 8), 2, augment="digits")
    network = build_network("small", (1, 8, 8), data.mean, data.std, cosine_head(8), generator(1, "weights"))
    network.train()(images / 255)
    for last in (1.0, 0.0):
        shares = torch.tensor([1.0] * 7 + [last])
        data = replace(data, prior=shares / shares.sum())
        head = clustered_head(inference_copy(network), data, generator(0, "clusters"))
        torch.testing.assert_close(head.norm(dim=1), torch.ones(8))


def test_whitened_samples_of_a_class_differ_in_all_directions_alike():
    samples, kinds = blobs([200] * 6, stretch=4.0)

    def unevenness(features):
        spread = features - class_means(features, kinds)[kinds]
        variances = torch.linalg.eigvalsh(spread.T @ spread)
        return float(variances[-1] / variances.median())

    assert unevenness(whitened(samples, *whitening(samples, kinds, samples))) < 0.5 * unevenness(samples)
