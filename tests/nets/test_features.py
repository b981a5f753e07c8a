"""Features before the head, and the probes that measure their quality."""

import pytest
import torch
import torch.nn.functional as F
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from worlds import CPU, cosine_head

from openworld.data.augment import family
from openworld.data.problem import statistics
from openworld.data.samples import InMemory
from openworld.nets.features import extract
from openworld.nets.inference import inference_copy
from openworld.nets.network import build_network
from openworld.ops import probes as module
from openworld.ops.probes import linear_probe_accuracy, neighbours_accuracy
from openworld.ops.rng import generator

CLASSES = 4


def blobs(count: int, distance: float, purpose: str) -> tuple[Tensor, Tensor]:
    """Return unit vectors and their classes."""
    classes = torch.arange(count) % CLASSES
    noise = torch.randn(count, 8, generator=generator(0, purpose))
    return F.normalize(distance * torch.eye(CLASSES, 8)[classes] + noise), classes


def known_and_judged(distance: float) -> tuple[Tensor, ...]:
    return *blobs(400, distance, "known"), *blobs(600, distance, "judged")


@pytest.mark.parametrize("probe", [neighbours_accuracy, linear_probe_accuracy])
def test_classes_that_lie_apart_are_all_told_apart(probe):
    assert probe(*known_and_judged(distance=20)) == 100


@pytest.mark.parametrize("probe", [neighbours_accuracy, linear_probe_accuracy])
def test_noise_is_worth_no_more_than_guessing(probe):
    assert probe(*known_and_judged(distance=0)) == pytest.approx(100 / CLASSES, abs=6)


@pytest.mark.slow
def test_neighbours_vote_by_their_cosines(monkeypatch):
    monkeypatch.setattr(module, "NEIGHBOURS", 7)
    monkeypatch.setattr(module, "CHUNK", 50)  # small, so that there are several chunks
    known, labels, judged, truth = known_and_judged(distance=2)
    right = 0
    for sample, label in zip(judged, truth.tolist(), strict=True):
        cosines = [float(other @ sample) for other in known]
        votes = [0.0] * CLASSES
        for near in sorted(range(len(known)), key=lambda other: -cosines[other])[:7]:
            votes[labels[near]] += cosines[near]
        right += votes.index(max(votes)) == label
    assert 40 < 100 * right / len(truth) < 90
    assert neighbours_accuracy(known, labels, judged, truth) == pytest.approx(100 * right / len(truth))


def test_all_are_neighbours_where_there_are_few():
    known = F.normalize(torch.tensor([[1.0, 0.1], [1.0, -0.1], [-1.0, 0.0]]))
    assert neighbours_accuracy(known, torch.tensor([0, 0, 1]), known, torch.tensor([0, 0, 1])) == 100


def test_the_linear_probe_is_a_logistic_regression():
    known, labels, judged, truth = known_and_judged(distance=2)
    middle, scale = known.mean(dim=0), known.std(dim=0)
    theirs = LogisticRegression(C=1 / (2 * module.DECAY * len(known)), max_iter=1000)
    theirs.fit((known - middle) / scale, labels)
    expected = 100 * theirs.score((judged - middle) / scale, truth)
    assert 40 < expected < 90
    assert linear_probe_accuracy(known, labels, judged, truth) == pytest.approx(expected, abs=0.5)


def test_a_feature_that_never_changes_does_not_hurt_the_linear_probe():
    known, labels, judged, truth = known_and_judged(distance=20)
    known, judged = (torch.cat([part, torch.full((len(part), 1), 0.3)], dim=1) for part in (known, judged))
    assert linear_probe_accuracy(known, labels, judged, truth) == 100


def test_features_are_those_of_the_plain_images_as_unit_vectors_in_order():
    images = torch.randint(0, 256, (30, 1, 8, 8), generator=generator(0, "images"), dtype=torch.uint8)
    samples = InMemory(images, CPU)
    mean, std = statistics(samples)
    network = inference_copy(build_network("small", (1, 8, 8), mean, std, cosine_head(3), generator(0, "weights")))
    features = extract(network, samples, family("digits", mean, std))
    assert features.norm(dim=1).tolist() == pytest.approx([1] * 30)
    for number in (0, 13, 29):
        alone = network.features(images[number, None] / 255)[0]
        torch.testing.assert_close(features[number], alone / alone.norm())
