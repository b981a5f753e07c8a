"""Clusters of features that become classes."""

import torch
import torch.nn.functional as F
from worlds import training_set

from openworld.clusters import clustered_head, first_head, seen_first
from openworld.nets import build_network, frozen
from openworld.rng import generator


def test_the_clusters_of_seen_classes_come_first_in_their_order():
    clusters = torch.tensor([4, 4, 4, 1, 2, 2, 1, 0])
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
    order = seen_first(clusters, labels, num_clusters=6).tolist()
    assert order[:2] == [4, 2]
    assert order[2] in (0, 1)
    assert sorted(order) == list(range(6))


def test_two_classes_in_one_cluster_get_two():
    order = seen_first(torch.tensor([1, 1, 1, 1]), torch.tensor([0, 1, 1, 1]), num_clusters=3).tolist()
    assert order[1] == 1
    assert sorted(order) == [0, 1, 2]


def test_a_head_of_clusters_tells_classes_apart_that_nobody_has_labelled():
    """Six patterns with noise on them, of which three have labels."""
    kinds = torch.arange(600) % 6
    patterns = 200 * torch.randint(0, 2, (6, 1, 8, 8), generator=generator(0, "patterns"))
    images = (patterns[kinds] + torch.randint(0, 40, (600, 1, 8, 8), generator=generator(0, "noise"))).to(torch.uint8)
    labelled, unlabelled = (kinds < 3) & (torch.arange(600) < 60), torch.arange(600) >= 60
    data = training_set(
        images[labelled], kinds[labelled], images[unlabelled], torch.full((6,), 1 / 6), num_seen=3, augment="digits"
    )
    network = build_network("small", 6, data.mean, data.std, generator(1, "weights"))
    network.train()(images / 255)  # statistics for BatchNorm; nothing is learnt
    network = frozen(network)
    head = clustered_head(network, data, generator(0, "clusters"))
    torch.testing.assert_close(head, F.normalize(head))
    network.head.load_state_dict({"weight": head})
    answers = network(images / 255).argmax(dim=1)
    assert (answers == kinds)[kinds < 3].float().mean() > 0.9
    novel = torch.stack([torch.bincount(answers[kinds == kind], minlength=6) for kind in (3, 4, 5)])
    assert sorted(novel.argmax(dim=1).tolist()) == [3, 4, 5]
    assert torch.equal(head, clustered_head(network, data, generator(0, "clusters")))

    begun = first_head(network, data, generator(0, "clusters"))
    assert torch.equal(begun[3:], head[3:])
    with torch.no_grad():
        features = F.normalize(network.features(images[labelled] / 255))
    means = torch.stack([features[kinds[labelled] == kind].mean(dim=0) for kind in range(3)])
    torch.testing.assert_close(begun[:3], F.normalize(means))
